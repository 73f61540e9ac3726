#include "torch/random_layer.h"

#include <array>
#include <utility>

#include <c10/core/GradMode.h>

#include "torch/asking_twice.h"

namespace pudica::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using Parameters = std::vector<at::Tensor>;

constexpr std::int64_t kHalf = RandomLayer::kColumns / 2;

at::Tensor left(const at::Tensor& x) { return x.narrow(/*dim=*/-1, 0, kHalf); }
at::Tensor right(const at::Tensor& x) { return x.narrow(/*dim=*/-1, kHalf, kHalf); }
at::Tensor heads(const at::Tensor& x) {
  return x.reshape({1, x.size(0), 2, kHalf}).transpose(1, 2);
}

struct Pure {
  const char* name;
  at::Tensor (*run)(const at::Tensor& a, const at::Tensor& b, const Parameters& w);
};

#define PURE(expression)                                                            \
  Pure {                                                                            \
#expression, [](const at::Tensor& a, const at::Tensor& b, const Parameters& w) {  \
          (void)b; (void)w; return at::Tensor(expression); } \
  }

const std::array kPure = {
    PURE(a.tanh()),
    PURE(a.sigmoid()),
    PURE(a.tanh().exp()),
    PURE(at::gelu(a)),
    PURE(at::silu(a)),
    PURE(a.relu()),
    PURE(a.cos()),
    PURE(a * .5),
    PURE(a.clone()),
    PURE(a.detach().sin()),
    PURE(at::softmax(a, -1)),
    PURE(at::layer_norm(a, {RandomLayer::kColumns}, w[2], w[3])),
    PURE(at::dropout(a, .3, /*train=*/true)),
    PURE(a* at::rand_like(a)),
    PURE(at::linear(a, w[0], w[3])),
    PURE(at::linear(a, w[1])),
    PURE(at::linear(a.to(at::kBFloat16), w[1].to(at::kBFloat16)).to(at::kFloat)),
    PURE(a.cumsum(0).tanh()),
    PURE(std::get<0>(a.sort(-1))),
    PURE(a - std::get<0>(a.max(-1, /*keepdim=*/true))),
    PURE((a - a.mean(-1, /*keepdim=*/true)) * (a.var(-1, true, true) + 1e-3).rsqrt()),
    PURE(at::cat(a.split(kHalf, -1), -1)),
    PURE(at::cat({right(a), left(b)}, -1)),
    PURE(at::stack({a, b, a}).sum(0)),
    PURE(at::where(a > 0, a, b)),
    PURE(a.index_select(0, at::arange(a.size(0) - 1, -1, -1))),
    PURE(a.gather(1, (b * 7).to(at::kLong).remainder(RandomLayer::kColumns).abs())),
    PURE(a + b),
    PURE(a* b),
    PURE(a / (b.abs() + 1.)),
    PURE(at::maximum(a, b)),
    PURE(at::lerp(a, b, .3)),
    PURE(at::addcmul(a, b, b, .5)),
    PURE(at::matmul(at::matmul(a, b.t()).tanh(), b)),
    PURE(at::addmm(a, b, w[0])),
    PURE((left(a).sigmoid() * right(a)).repeat({1, 2})),
    PURE((left(a) * right(b).tanh()).repeat({1, 2})),
    PURE(at::scaled_dot_product_attention(heads(a), heads(b), heads(a))
             .transpose(1, 2)
             .reshape({a.size(0), RandomLayer::kColumns})),
    PURE(at::matmul(at::softmax(at::matmul(heads(a), heads(b).transpose(2, 3)), -1), heads(b))
             .transpose(1, 2)
             .reshape({a.size(0), RandomLayer::kColumns})),
    PURE(at::conv1d(a.t().unsqueeze(0), w[0].unsqueeze(2)).squeeze(0).t().contiguous()),
    PURE(at::glu(at::cat({a, b}, -1))),
    PURE(AskingTwice::apply(a, b)),
    PURE(AskingTwice::apply(a.tanh(), b)),
    PURE(at::einsum("ij,kj->ik", {a, w[1]})),
};

// Other names of the same bytes.
const std::array kViews = {
    PURE(a.view({a.size(0), RandomLayer::kColumns})),
    PURE(a.t().t()),
    PURE(a.narrow(0, 0, a.size(0))),
    PURE(a.unsqueeze(0).select(0, 0)),
    PURE(a.detach()),
};

#undef PURE

struct Write {
  const char* name;
  void (*run)(const at::Tensor& a, const at::Tensor& b, const Parameters& w);
};

#define WRITE(expression)                                                           \
  Write {                                                                           \
#expression, [](const at::Tensor& a, const at::Tensor& b, const Parameters& w) {  \
          (void)b; (void)w; expression; } \
  }

const std::array kWrites = {
    WRITE(a.add_(1.)),
    WRITE(a.mul_(.7)),
    WRITE(a.add_(b)),
    WRITE(a.sub_(b.tanh())),
    WRITE(a.mul_(b.sigmoid())),
    WRITE(a.add_(b, .5).mul_(.5)),
    WRITE(a.tanh_()),
    WRITE(a.sigmoid_()),
    WRITE(a.relu_()),
    WRITE(a.clamp_(-1, 1)),
    WRITE(a.copy_(b)),
    WRITE(a.zero_()),
    WRITE(a.masked_fill_(b > .5, .1)),
    WRITE(a.addcmul_(b, b, .3)),
    WRITE(a.addmm_(b, w[0], 1, .1)),
    WRITE(a.lerp_(b, .25)),
    WRITE(a.index_add_(0, at::arange(a.size(0)), b)),
    WRITE(at::dropout_(const_cast<at::Tensor&>(a), .2, true)),
    WRITE(a.normal_()),
    WRITE(left(a).mul_(.5)),
    WRITE(left(a).copy_(right(b))),
    WRITE(right(a).add_(left(b))),
    WRITE(a.select(0, 3).add_(b.select(0, 1))),
    WRITE(a.t().mul_(1.1)),
    WRITE(a.detach().add_(.5)),
};

#undef WRITE

// Into a buffer of its own, unseen by autograd.
at::Tensor into_buffer(const at::Tensor& a, const at::Tensor& b) {
  const c10::AutoGradMode no_gradients(false);
  at::Tensor out = at::empty_like(a);
  at::mul_out(out, a, b.tanh());
  return out.add_(a);
}

}  // namespace

std::size_t RandomLayer::pick(std::size_t count) {
  return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
}

std::size_t RandomLayer::pick_writable() {
  std::size_t number = pick(writable_.size());
  while (!writable_[number]) number = pick(writable_.size());
  return number;
}

RandomLayer::RandomLayer(std::uint64_t seed) : random_(seed), writable_{true, false} {
  for (int i = 0; i < 2; ++i) {
    parameters_.push_back((at::randn({kColumns, kColumns}) / 6.).set_requires_grad(true));
  }
  for (int i = 0; i < 2; ++i) {
    parameters_.push_back((at::randn({kColumns}) / 6. + 1. - i).set_requires_grad(true));
  }
  const std::size_t length = 4 + pick(12);
  for (std::size_t i = 0; i < length; ++i) add_operator();
  const std::size_t tensors = writable_.size();
  results_ = {tensors - 1, pick(tensors), pick(2) == 0 ? 1 : pick(tensors)};
  text_ += "x + tanh(" + std::to_string(results_[0]) + ") W + " + std::to_string(results_[1]) +
           ", " + std::to_string(results_[2]);
}

void RandomLayer::add_operator() {
  const std::size_t tensors = writable_.size();
  const std::size_t a = pick(tensors);
  const std::size_t b = pick(tensors);
  const std::string on = "  a=" + std::to_string(a) + " b=" + std::to_string(b) + "\n";
  const std::string made = std::to_string(tensors) + " = ";
  const std::size_t kind = pick(20);
  const auto bound = [this](auto run) {
    return [this, run](const at::Tensor& x, const at::Tensor& y) { return run(x, y, parameters_); };
  };
  if (kind < 11) {
    const Pure& pure = kPure.at(pick(kPure.size()));
    text_ += made + pure.name + on;
    operators_.push_back({bound(pure.run), nullptr, a, b});
    writable_.push_back(true);
  } else if (kind < 13) {
    const Pure& view = kViews.at(pick(kViews.size()));
    text_ += made + view.name + on;
    operators_.push_back({bound(view.run), nullptr, a, b});
    // Of either: a variation may turn them round.
    writable_.push_back(writable_[a] && writable_[b]);
  } else if (kind < 14) {
    text_ += made + "into_buffer(a, b)" + on;
    operators_.push_back({into_buffer, nullptr, a, b});
    writable_.push_back(true);
  } else {
    const std::size_t written = pick_writable();
    const Write& write = kWrites.at(pick(kWrites.size()));
    text_ += std::string(write.name) + "  a=" + std::to_string(written) + on.substr(on.find(" b="));
    operators_.push_back({nullptr, bound(write.run), written, b});
  }
}

std::vector<at::Tensor> RandomLayer::forward(const std::vector<at::Tensor>& inputs,
                                             std::uint64_t variation) const {
  const at::Tensor& x = inputs[0];
  Tensors all{at::linear(x, parameters_[0]), inputs[1]};
  for (std::size_t i = 0; i < operators_.size(); ++i) {
    const Operator& one = operators_[i];
    const bool varies = variation != kAsEver && variation / 2 % operators_.size() == i;
    const bool turned = varies && variation % 2 == 0 && one.make;
    const at::Tensor& a = all[turned ? one.b : one.a];
    const at::Tensor& b = all[turned ? one.a : one.b];
    if (one.make) {
      all.push_back(varies && !turned ? a * b : one.make(a, b));
    } else if (varies) {
      a.add_(b);
    } else {
      one.write(a, b);
    }
  }
  const at::Tensor y = at::linear(all[results_[0]].tanh(), parameters_[1]);
  return {x + y + all[results_[1]] * .5, all[results_[2]]};
}

}  // namespace pudica::testing
