// `dtr`: dynamic tensor rematerialisation.
#include "policy/fixed_policy.h"
#include "policy/policies.h"

namespace pudica {
namespace {

Plan keep_on_tapes(std::size_t layers) {
  Plan plan;
  plan.modes.assign(layers, Mode::keep());
  plan.revocable = true;
  plan.reason = "policy dtr: every layer kept, single tensors evicted when memory is short";
  return plan;
}

class DtrPolicy final : public FixedPolicy {
 public:
  explicit DtrPolicy(Eviction eviction) : FixedPolicy("dtr", keep_on_tapes), eviction_(eviction) {}

  [[nodiscard]] bool wants_menus() const override { return true; }  // and so tapes
  [[nodiscard]] std::optional<Eviction> eviction() const override { return eviction_; }

 private:
  Eviction eviction_;
};

}  // namespace

std::unique_ptr<Policy> make_dtr_policy(const Eviction& eviction) {
  return std::make_unique<DtrPolicy>(eviction);
}

}  // namespace pudica
