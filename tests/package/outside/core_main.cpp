// A program outside the project: uses the installed core through its public headers.
#include <cstdlib>
#include <pudica/bytes.h>
#include <pudica/controller.h>
#include <pudica/shape_key.h>

int main() {
  const auto budget = pudica::parse_bytes("600MiB");
  if (!budget || budget->count() != std::int64_t{600} << 20) return EXIT_FAILURE;
  const auto shape = pudica::ShapeKey::parse("12x384");
  if (!shape || shape->to_named_string() != "batch=12,source=384") return EXIT_FAILURE;
#ifdef PUDICA_HAS_CONTROLLER
  const auto controller = pudica::make_controller({});
  pudica::StepContext context;
  context.shape = *shape;
  context.budget_bytes = *budget;
  if (!controller->begin_step(context).plan) return EXIT_FAILURE;
#endif
  return EXIT_SUCCESS;
}
