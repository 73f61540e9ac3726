// predict_bench: what a prediction and an observation cost, for segments of 40 to 300 events.
// Times are of single calls, timer overhead included.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "pudica/predictor.h"

namespace pudica {
namespace {

constexpr int kCalls = 20000;
constexpr std::uint64_t kSeed = 1;
const SegmentKey kSegment{SegmentKind::kBackward, 0, Mode::keep(), 0};

struct Row {
  std::string what;
  std::size_t events = 0;
  std::vector<double> nanoseconds;
};

// A layer's log: a few dozen distinct sizes, allocated and freed again.
SegmentSample layer_sample(const ShapeKey& shape, std::size_t events) {
  SegmentSample sample;
  const std::int64_t rows = shape[0] * shape[1];
  for (std::size_t i = 0; i < events; ++i) {
    const auto width = static_cast<std::int64_t>(64 + 32 * ((i / 2) % 24));
    std::int64_t size = 4 * width * rows;
    if (i % 14 >= 12) size = 4 * width;
    if (i % 10 >= 8) size = 16 * rows * shape[1];
    const bool frees = i % 2 == 1 && i % 7 != 1;
    sample.deltas.push_back(frees ? -std::abs(sample.deltas.back()) : size);
    sample.net_bytes += sample.deltas.back();
    sample.peak_bytes = std::max(sample.peak_bytes, sample.net_bytes);
  }
  sample.seconds = 1e-6 * static_cast<double>(rows);
  return sample;
}

class ShapeSource {
 public:
  explicit ShapeSource(std::int64_t constant_batch = 0) : constant_batch_(constant_batch) {}

  ShapeKey next() {
    const std::int64_t batch = constant_batch_ > 0 ? constant_batch_ : uniform(2, 32);
    return {batch, uniform(32, 512)};
  }

 private:
  std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  std::mt19937_64 random_{kSeed};
  std::int64_t constant_batch_;
};

// Prepares call i outside of the measured time, then measures it.
Row measure(std::string what, std::size_t events,
            const std::function<std::function<void()>(int)>& prepare, int calls = kCalls) {
  std::vector<double> nanoseconds;
  nanoseconds.reserve(static_cast<std::size_t>(calls));
  for (int i = 0; i < calls; ++i) {
    const auto call = prepare(i);
    const auto begin = std::chrono::steady_clock::now();
    call();
    const auto end = std::chrono::steady_clock::now();
    nanoseconds.push_back(std::chrono::duration<double, std::nano>(end - begin).count());
  }
  return {std::move(what), events, std::move(nanoseconds)};
}

std::unique_ptr<Predictor> taught(std::size_t events, std::size_t shapes, ShapeSource& source,
                                  const PredictorOptions& options = {}) {
  auto predictor = make_online_predictor(options);
  for (std::size_t i = 0; i < shapes; ++i) {
    const ShapeKey shape = source.next();
    predictor->observe(kSegment, shape, layer_sample(shape, events));
  }
  return predictor;
}

void measure_predict(std::size_t events, std::vector<Row>& rows) {
  volatile std::int64_t sink = 0;
  const auto predict_rows = [&](const std::string& what, Predictor& predictor, ShapeSource source) {
    rows.push_back(measure(what, events, [&, source](int) mutable {
      const ShapeKey shape = source.next();
      return [&predictor, &sink, shape] { sink = predictor.predict(kSegment, shape)->peak_bytes; };
    }));
  };
  ShapeSource mixed;
  const auto identified = taught(events, 40, mixed);
  predict_rows("predict, identified", *identified, mixed);
  ShapeSource constant(8);
  const auto ambiguous = taught(events, 40, constant);
  predict_rows("predict, batch never varied", *ambiguous, ShapeSource());
  ShapeSource again(8);
  predict_rows("predict, seen shape", *ambiguous, again);
}

void measure_observe(std::size_t events, std::vector<Row>& rows) {
  ShapeSource source;
  const auto predictor = taught(events, 40, source);
  const ShapeKey known = source.next();
  const SegmentSample sample = layer_sample(known, events);
  predictor->observe(kSegment, known, sample);
  rows.push_back(measure("observe, known shape", events, [&](int) {
    return [&] { predictor->observe(kSegment, known, sample); };
  }));
  ShapeSource fresh;
  rows.push_back(measure("observe, new shape as predicted", events, [&](int) {
    const ShapeKey shape = fresh.next();
    return [&predictor, shape, next = layer_sample(shape, events)] {
      predictor->observe(kSegment, shape, next);
    };
  }));
  rows.push_back(measure(
      "observe, 2nd shape (learns all)", events,
      [&](int) {
        auto one = std::shared_ptr<Predictor>(taught(events, 1, fresh));
        const ShapeKey shape = fresh.next();
        return [one, shape, next = layer_sample(shape, events)] {
          one->observe(kSegment, shape, next);
        };
      },
      500));
  rows.push_back(measure(
      "observe, contradiction among 40", events,
      [&](int) {
        auto many = std::shared_ptr<Predictor>(taught(events, 40, fresh));
        const ShapeKey shape = fresh.next();
        SegmentSample odd = layer_sample(shape, events);
        odd.deltas[0] += 7;
        odd.net_bytes += 7;
        odd.peak_bytes += 7;
        return [many, shape, odd] { many->observe(kSegment, shape, odd); };
      },
      200));
}

int run(int argc, char** argv) {
  const bench::Arguments arguments = bench::parse_arguments(argc, argv, kCalls);
  std::vector<Row> rows;
  for (const std::size_t events : {40, 100, 200, 300}) {
    measure_predict(events, rows);
    measure_observe(events, rows);
  }
  bench::Report report("predict", kSeed);
  for (Row& row : rows) {
    report.add(std::to_string(row.events) + " events: " + row.what, "ns",
               std::move(row.nanoseconds));
  }
  return report.write(arguments);
}

}  // namespace
}  // namespace pudica

int main(int argc, char** argv) { return pudica::run(argc, argv); }
