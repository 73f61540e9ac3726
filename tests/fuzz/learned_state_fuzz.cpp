// A learned state from a file or another process. The first byte chooses what is fuzzed: the text
// as it is, or with correct checksums around the body or around body and predictor, which a fuzzer
// would never guess. What is accepted must be usable.
#include <vector>

#include "controller/learned_state.h"
#include "fuzz/fuzz.h"
#include "predictor/predictor_file.h"
#include "pudica/controller.h"

namespace {

constexpr const char* kFingerprint = "f";

std::string sealed(std::string_view text) {
  if (text.empty() || text.front() == 'r') return std::string(text.empty() ? text : text.substr(1));
  const char how = text.front();
  std::string body(text.substr(1));
  constexpr std::string_view kPredictor = "predictor\n";
  const std::size_t inner = body.find(kPredictor);
  if (how == 'p' && inner != std::string::npos) {
    const std::size_t begin = inner + kPredictor.size();
    body = body.substr(0, begin) + pudica::predictor::with_checksum(body.substr(begin));
  }
  return pudica::seal_state(body, kFingerprint);
}

// What the daemon and the training process do with a state.
void use(pudica::Controller& controller) {
  using namespace pudica;
  const std::string again = controller.serialize(kFingerprint);
  auto copy = make_controller({});
  fuzz::require(copy->restore(again, kFingerprint).has_value(), "cannot be read back", again);
  for (const ShapeKey& shape : {ShapeKey{4, 100}, ShapeKey{1}, ShapeKey{2, 7, 9}}) {
    for (const Bytes budget : {Bytes(0), Bytes(1), Bytes(std::int64_t{1} << 30)}) {
      const auto estimate = controller.estimate(shape, budget);
      if (!estimate) fuzz::require_message(estimate.error());
    }
    StepContext context;
    context.shape = shape;
    const auto costs = controller.costs(context);
    if (!costs) fuzz::require_message(costs.error());
  }
  (void)controller.snapshot();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto controller = pudica::make_controller({});
  const auto done = controller->restore(sealed(pudica::fuzz::text_of(data, size)), kFingerprint);
  if (done) {
    use(*controller);
  } else {
    pudica::fuzz::require_message(done.error());
  }
  return 0;
}
