#include "cli/commands.h"
namespace pudica::cli {
int report_command(Session& session) { return fail(session, invalid_argument("later")); }
}  // namespace pudica::cli
