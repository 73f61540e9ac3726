#include "train/worker_run.h"

#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adamw.h>

namespace pudica::train {
namespace {

// Of the tokens of a batch: apart from the stream that shuffles the examples.
constexpr std::uint64_t kTokenStream = 1'000'000;

double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_).count();
  }
  [[nodiscard]] double cpu_seconds() const { return process_cpu_seconds() - cpu_; }

 private:
  std::chrono::steady_clock::time_point wall_ = std::chrono::steady_clock::now();
  double cpu_ = process_cpu_seconds();
};

class RunImpl final : public TrainingRun {
 public:
  RunImpl(const TrainOptions& options, const RunData& data, c10::Device device)
      : options_(options), data_(data), device_(device) {
    at::manual_seed(options.seed);
    model_ = make_model(options.model, data.dimensions, device);
    at::manual_seed(options.seed + 1);  // dropout's own stream, whatever the initialisation used
    optimizer_.emplace(model_->parameters(),
                       torch::optim::AdamWOptions(learning_rate(options.model)));
  }

  Result<void> attach_handle(const RunSetup& setup) {
    AttachOptions attach_options;
    attach_options.budget_bytes = setup.budget_bytes;
    attach_options.enforcement = setup.enforcement;
    attach_options.policy = setup.policy;
    attach_options.next_budget = setup.next_budget;
    attach_options.parameters = model_->parameters();
    attach_options.device = device_;
    attach_options.menu_rules = setup.menu_rules;
    attach_options.offload = setup.offload;
    if (options_.counts_operators) attach_options.clock = operator_clock();
    auto handle = attach(std::move(attach_options));
    if (!handle) return handle.error();
    handle_ = std::move(*handle);
    return {};
  }

  StepRow step(std::int64_t index) override {
    const Batch& batch = data_.batches[static_cast<std::size_t>(index)];
    const TokenBatch tokens =
        make_tokens(data_.dataset, batch, options_.model.vocab,
                    Random(options_.seed, kTokenStream + static_cast<std::uint64_t>(index)));
    StepRow row;
    row.step = index;
    row.shape = batch.shape.to_string();
    const Stopwatch watch;
    optimizer_->zero_grad();
    if (handle_) handle_->begin_step(batch.shape);
    row.loss = forward_and_backward(tokens);
    optimizer_->step();
    if (handle_) report_ = handle_->end_step();
    synchronize();
    row.seconds = watch.seconds();
    row.cpu_seconds = watch.cpu_seconds();
    fill(row);
    return row;
  }

  [[nodiscard]] const StepReport& last_report() const override { return report_; }

  [[nodiscard]] std::string params_sha256() const override {
    return train::params_sha256(model_->parameters());
  }

 private:
  double forward_and_backward(const TokenBatch& tokens) {
    const TensorBatch batch = to_tensors(tokens, device_);
    const at::Tensor loss = model_->loss(batch, handle_ ? handled_runner() : plain_runner());
    loss.backward();
    return loss.item<double>();
  }

  LayerRunner handled_runner() {
    return [this](std::int64_t index, const LayerFunction& function, std::vector<at::Tensor> inputs,
                  const std::string& layer_class) {
      return handle_->layer(index, function, std::move(inputs), LayerOptions{layer_class, {}});
    };
  }

  // Waits for the device, so that the clock covers the step's work.
  void synchronize() const {
    if (device_.is_cuda()) at::zeros({1}, at::TensorOptions().device(device_)).item<float>();
  }

  void fill(StepRow& row) {
    row.peak = report_.peak_bytes;
    row.budget = report_.budget_bytes;
    row.base = report_.base_bytes;
    row.revocations = report_.revocations;
    row.overrun = report_.overrun;
    row.layer_calls = report_.layer_calls;
    row.plan_ns = report_.plan_ns;
    const Plan* plan = report_.plan.get();
    row.predicted = report_.predicted_peak().value_or(Bytes(0));
    row.bound = plan != nullptr && plan->peak_is_bound;
    // What is measured in a step that has a plan is no warm-up.
    const bool planned = plan != nullptr && plan->predicted_peak_bytes > Bytes(0);
    row.learning = report_.recorded && !planned;
  }

  const TrainOptions& options_;
  const RunData& data_;
  c10::Device device_;
  std::unique_ptr<Model> model_;
  std::optional<torch::optim::AdamW> optimizer_;
  std::unique_ptr<Handle> handle_;  // null: plain
  StepReport report_;
};

}  // namespace

Result<RunData> load_run_data(const TrainOptions& options) {
  auto dataset = load_data(options.data, options.max_length);
  if (!dataset) return dataset.error();
  RunData data;
  data.dataset = std::move(*dataset);
  data.batches = make_batches(data.dataset, {options.batch, options.steps, options.seed});
  data.dimensions.source_length = data.dataset.longest(0);
  if (data.dataset.dimensions > 1) data.dimensions.target_length = data.dataset.longest(1);
  return data;
}

Result<std::unique_ptr<TrainingRun>> start_run(const TrainOptions& options, const RunData& data,
                                               const RunSetup& setup) {
  at::set_num_threads(static_cast<int>(options.threads));
  const c10::Device asked(options.device);
  if (setup.plain) return std::unique_ptr<TrainingRun>(new RunImpl(options, data, asked));
  const auto device = install_meter(asked);  // before the parameters
  if (!device) return device.error();
  auto run = std::make_unique<RunImpl>(options, data, *device);
  auto attached = run->attach_handle(setup);
  if (!attached) return attached.error();
  return std::unique_ptr<TrainingRun>(std::move(run));
}

}  // namespace pudica::train
