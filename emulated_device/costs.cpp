#include "emulated_device/costs.h"

#include <algorithm>

#include "emulated_device/settings.h"

namespace pudica::emulated {
namespace {

// An elementwise kernel of torch's: four elements a thread, two tensors read and one written.
constexpr double kBytesPerThread = 3 * 4 * 4;

double at_rate(double bytes, double gb_s) { return 1e-3 * bytes / gb_s; }
double with_launch(double microseconds) { return std::max(settings().launch_us, microseconds); }

}  // namespace

double copy_us(std::size_t bytes, cudaMemcpyKind kind) {
  const auto count = static_cast<double>(bytes);
  const Card& card = settings().card;
  if (kind == cudaMemcpyDeviceToDevice) return with_launch(at_rate(2 * count, card.memory_gb_s));
  return with_launch(at_rate(count, card.link_gb_s));
}

double set_us(std::size_t bytes) {
  return with_launch(at_rate(static_cast<double>(bytes), settings().card.memory_gb_s));
}

double threads_us(dim3 grid, dim3 block) {
  const double threads = 1.0 * grid.x * grid.y * grid.z * block.x * block.y * block.z;
  return with_launch(at_rate(threads * kBytesPerThread, settings().card.memory_gb_s));
}

double product_us(const Product& product) {
  const Card& card = settings().card;
  constexpr std::size_t kHalfBytes = 2;
  const double tflops = product.item_bytes <= kHalfBytes ? card.half_tflops : card.single_tflops;
  const auto [m, n, k, count, item_bytes] = product;
  const double arithmetic = 1e-6 * 2 * m * n * k * count / tflops;
  const double bytes = count * (m * k + k * n + m * n) * static_cast<double>(item_bytes);
  return with_launch(std::max(arithmetic, at_rate(bytes, card.memory_gb_s)));
}

}  // namespace pudica::emulated
