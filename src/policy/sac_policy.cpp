// `sac`: selective activation checkpointing as PyTorch has it.
#include <utility>

#include "base/nearest_name.h"
#include "policy/fixed_policy.h"
#include "policy/policies.h"

namespace pudica {
namespace {

// Every layer, at every shape, whatever the budget: the choice is one of operators.
class SacPolicy final : public FixedPolicy {
 public:
  explicit SacPolicy(std::vector<std::string> operators)
      : FixedPolicy("sac",
                    [reason = "policy sac: every layer recomputed, but for the results of " +
                              joined_names(operators)](std::size_t layers) {
                      Plan plan;
                      plan.modes.assign(layers, Mode::full());
                      plan.default_mode = Mode::full();
                      plan.revocable = false;
                      plan.reason = reason;
                      return plan;
                    }),
        operators_(std::move(operators)) {}

  [[nodiscard]] std::vector<std::string> keep_operators() const override { return operators_; }

 private:
  std::vector<std::string> operators_;
};

}  // namespace

const std::vector<std::string>& products_and_attention() {
  static const std::vector<std::string> names{"mm",
                                              "addmm",
                                              "_addmm_activation",
                                              "bmm",
                                              "baddbmm",
                                              "linear",
                                              "_scaled_mm",
                                              "convolution",
                                              "_scaled_dot_product_*",
                                              "_flash_attention_forward",
                                              "_efficient_attention_forward"};
  return names;
}

std::unique_ptr<Policy> make_sac_policy(std::vector<std::string> operators) {
  return std::make_unique<SacPolicy>(std::move(operators));
}

}  // namespace pudica
