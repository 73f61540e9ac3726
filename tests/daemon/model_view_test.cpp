#include "inspect/model_view.h"

#include <thread>

#include <nlohmann/json.hpp>

#include "daemon/model_support.h"

namespace pudica::daemon::testing {
namespace {

using namespace inspect;

ModelView view_of(const Process& process, const ModelViewOptions& options = {}) {
  auto view = ModelView::from_state(process.state(), kFingerprint, options);
  EXPECT_TRUE(view) << view.error().message;
  return std::move(*view);
}

TEST(ModelView, PredictsWhatTheTrainingProcessPredictsAndMeasures) {
  for (const int decoders : {0, 3}) {
    SyntheticSpec spec;
    spec.encoder_layers = 6;
    spec.decoder_layers = decoders;
    const auto process = taught_process(spec);
    for (int i = 0; i < 12; ++i)
      process->step(decoders > 0 ? ShapeKey{3, 50 + 9 * i, 20 + 7 * i} : ShapeKey{3, 50 + 9 * i});
    for (const double share : {0.0, 0.3, 0.7, 1.0, 1.3}) {
      const ShapeKey shape = decoders > 0 ? ShapeKey{5, 180, 77} : ShapeKey{5, 180};
      const Bytes budget = process->budget_at(shape, share) + Bytes(4096);
      const ModelView view = view_of(*process);
      const auto estimate = view.estimate(shape.to_string(), budget);
      const auto explanation = view.explain(shape.to_named_string(), budget);
      ASSERT_TRUE(estimate) << estimate.error().message;
      ASSERT_TRUE(explanation) << explanation.error().message;
      const auto inside = process->controller().estimate(shape, budget);
      EXPECT_EQ(estimate->predicted_peak_bytes, inside->plan->predicted_peak_bytes);
      EXPECT_EQ(explanation->predicted_peak_bytes, inside->plan->predicted_peak_bytes);
      const StepRecord record = process->step(shape, budget);
      EXPECT_EQ(estimate->predicted_peak_bytes, record.measured_bytes) << share;
      ASSERT_EQ(explanation->layers.size(), record.modes.size());
      for (std::size_t i = 0; i < record.modes.size(); ++i) {
        EXPECT_EQ(explanation->layers[i].mode, record.modes[i]) << i;
      }
    }
  }
}

TEST(ModelView, EstimateTellsBoundsAndModes) {
  const auto process = taught_process();
  const ModelView view = view_of(*process);
  const ShapeKey shape{5, 180};
  const Bytes half = process->budget_at(shape, 0.5);
  const auto estimate = view.estimate("5x180", half);
  ASSERT_TRUE(estimate);
  EXPECT_TRUE(estimate->fits);
  EXPECT_TRUE(estimate->identified);
  EXPECT_EQ(estimate->keep_all_peak_bytes, process->budget_at(shape, 1.0));
  EXPECT_LE(estimate->floor_peak_bytes, process->budget_at(shape, 0.0));
  EXPECT_LE(estimate->predicted_peak_bytes, half);
  EXPECT_GT(estimate->extra_seconds, 0);
  EXPECT_EQ(estimate->modes.at(Mode::keep()) + estimate->modes.at(Mode::full()), 8);
  ASSERT_FALSE(estimate->frontier.empty());
  EXPECT_EQ(estimate->frontier.front().peak_bytes, estimate->floor_peak_bytes.count());
  EXPECT_EQ(estimate->frontier.back().peak_bytes, estimate->keep_all_peak_bytes.count());
  EXPECT_EQ(estimate->frontier.back().time_ns, 0);
  const auto tight = view.estimate("5x180", Bytes(1000));
  ASSERT_TRUE(tight);
  EXPECT_FALSE(tight->fits);
}

// The bytes and the seconds that the reasons name, by the model's own truth.
TEST(ModelView, ReasonsAreThoseOfTheCosts) {
  const auto process = taught_process();
  for (int i = 0; i < 20; ++i) process->step({4, 60 + 7 * i});  // the margin goes to nothing
  const ShapeKey shape{5, 180};
  const StepCosts truth = process->model().true_costs(shape, false);
  const Bytes budget = process->budget_at(shape, 0.5);
  const ModelView view = view_of(*process);
  const auto explanation = view.explain("5x180", budget);
  ASSERT_TRUE(explanation);
  EXPECT_EQ(explanation->margin_bytes, Bytes(0));
  EXPECT_NE(explanation->reason.find("no plan that fits is faster"), std::string::npos)
      << explanation->reason;
  double sum = 0;
  int recomputed = 0;
  for (const LayerExplanation& layer : explanation->layers) {
    const auto& modes = truth.layers[static_cast<std::size_t>(layer.layer)].modes;
    const bool full = layer.mode == Mode::full();
    EXPECT_EQ(layer.layer_class, "encoder");
    EXPECT_EQ(layer.held_bytes.count(), modes[full ? 1 : 0].forward_net_bytes);
    EXPECT_EQ(layer.keep_held_bytes.count(), modes[0].forward_net_bytes);
    EXPECT_NEAR(layer.extra_seconds, modes[full ? 1 : 0].extra_seconds, 1e-4);
    const Bytes freed(modes[0].forward_net_bytes - modes[1].forward_net_bytes);
    EXPECT_NE(layer.why.find(format_bytes(freed)), std::string::npos) << layer.why;
    EXPECT_NE(layer.why.find(format_bytes(budget)), std::string::npos) << layer.why;
    EXPECT_EQ(layer.why.find(full ? "recomputed: frees " : "kept: the step stays within "), 0U);
    if (full) {
      // What it says of keeping this layer is so.
      std::vector<std::uint8_t> choice;
      for (const LayerExplanation& other : explanation->layers) {
        choice.push_back(other.mode == Mode::full() && other.layer != layer.layer ? 1 : 0);
      }
      const Bytes with = process->model().settled_base() + Bytes(step_peak_bytes(truth, choice));
      EXPECT_GT(with, budget);
      EXPECT_NE(layer.why.find("kept, the step would peak at " + format_bytes(with)),
                std::string::npos)
          << layer.why;
      ++recomputed;
    }
    sum += layer.extra_seconds;
  }
  EXPECT_GT(recomputed, 0);
  EXPECT_LT(recomputed, 8);
  EXPECT_NEAR(explanation->extra_seconds, sum, 1e-12);
}

TEST(ModelView, ReasonsDifferWithTheBudget) {
  const auto process = taught_process();
  const ModelView view = view_of(*process);
  const auto why = [&view](Bytes budget) { return view.explain("5x180", budget)->layers[2].why; };
  EXPECT_EQ(why(Bytes(0)), "kept: no budget is set");
  EXPECT_EQ(why(Bytes(std::int64_t{1} << 40U)).find("kept: with every layer kept the step peaks"),
            0U);
  EXPECT_NE(why(Bytes(1000)).find("within which no plan stays"), std::string::npos)
      << why(Bytes(1000));
}

TEST(ModelView, ExplainsThePlanThatARunHas) {
  const auto process = taught_process();
  const ModelView view = view_of(*process);
  const ShapeKey shape{5, 180};
  const std::vector<Mode> modes(8, Mode::full());
  const Bytes budget = process->budget_at(shape, 2.0);
  const auto explanation = view.explain("5x180", budget, modes);
  ASSERT_TRUE(explanation) << explanation.error().message;
  EXPECT_EQ(explanation->predicted_peak_bytes, process->budget_at(shape, 0.0));
  EXPECT_TRUE(explanation->fits);
  EXPECT_NE(explanation->layers[0].why.find("still stay within"), std::string::npos)
      << explanation->layers[0].why;
  EXPECT_FALSE(view.explain("5x180", budget, {Mode::full()}));
  EXPECT_FALSE(view.explain("5x180", budget, std::vector<Mode>(8, Mode::selective(3))));
}

TEST(ModelView, UsesTheMenuAndTheBaseOfTheRun) {
  const auto process = taught_process();
  const ShapeKey shape{5, 180};
  ModelViewOptions options;
  options.controller.menu = {Mode::Kind::kKeep};
  const ModelView keeping = view_of(*process, options);
  const auto estimate = keeping.estimate("5x180", process->budget_at(shape, 0.5));
  ASSERT_TRUE(estimate) << estimate.error().message;
  EXPECT_FALSE(estimate->fits);
  EXPECT_EQ(estimate->modes.count(Mode::full()), 0U);
  ModelViewOptions based;
  based.base_bytes = process->model().settled_base() + Bytes(1 << 20);
  const auto higher = view_of(*process, based).estimate("5x180", Bytes(0));
  ASSERT_TRUE(higher);
  EXPECT_EQ(higher->predicted_peak_bytes, process->budget_at(shape, 1.0) + Bytes(1 << 20));
}

TEST(ModelView, SaysWhatIsMissing) {
  Process untaught;
  const ModelView nothing = view_of(untaught);
  EXPECT_EQ(nothing.estimate("4x64", Bytes(0)).error().code, ErrorCode::kUnavailable);
  const auto process = taught_process();
  const ModelView view = view_of(*process);
  EXPECT_EQ(view.estimate("4x64x2", Bytes(0)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(view.explain("4x64", Bytes(-1)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(ModelView::from_state(process->state(), "another"));
  EXPECT_EQ(ModelView::from_state("x", kFingerprint).error().code, ErrorCode::kCorrupt);
}

TEST(ModelView, JsonIsAsTheContractHasIt) {
  const auto process = taught_process();
  const ModelView view = view_of(*process);
  const Bytes budget = process->budget_at({5, 180}, 0.5);
  const auto estimate = view.estimate("5x180", budget);
  const auto json = nlohmann::json::parse(to_json(*estimate, "k3v9q2"));
  EXPECT_EQ(json["run"], "k3v9q2");
  EXPECT_EQ(json["key"], "batch=5,source=180");
  EXPECT_EQ(json["budget_bytes"], budget.count());
  EXPECT_EQ(json["predicted_peak_bytes"], estimate->predicted_peak_bytes.count());
  EXPECT_EQ(json["modes"]["keep"], estimate->modes.at(Mode::keep()));
  EXPECT_EQ(json["modes"]["full"], estimate->modes.at(Mode::full()));
  EXPECT_EQ(json["frontier"].size(), estimate->frontier.size());
  const std::vector<std::string> estimate_fields{"run",
                                                 "key",
                                                 "budget_bytes",
                                                 "fits",
                                                 "identified",
                                                 "keep_all_peak_bytes",
                                                 "floor_peak_bytes",
                                                 "predicted_peak_bytes",
                                                 "extra_seconds",
                                                 "modes",
                                                 "frontier"};
  for (const std::string& field : estimate_fields) EXPECT_TRUE(json.contains(field)) << field;
  EXPECT_EQ(json.size(), estimate_fields.size());
  const auto explained = nlohmann::json::parse(to_json(*view.explain("5x180", budget), "k3v9q2"));
  const std::vector<std::string> explain_fields{"run",
                                                "key",
                                                "budget_bytes",
                                                "fits",
                                                "predicted_peak_bytes",
                                                "keep_all_peak_bytes",
                                                "floor_peak_bytes",
                                                "margin_bytes",
                                                "extra_seconds",
                                                "reason",
                                                "layers",
                                                "menu"};
  for (const std::string& field : explain_fields) EXPECT_TRUE(explained.contains(field)) << field;
  EXPECT_EQ(explained.size(), explain_fields.size());
  for (const char* field :
       {"layer", "class", "mode", "held_bytes", "keep_held_bytes", "extra_seconds", "why"}) {
    EXPECT_TRUE(explained["layers"][7].contains(field)) << field;
  }
}

TEST(ModelView, ExplainsTheSelectiveModesOfAClass) {
  SyntheticSpec spec;
  spec.menu_steps = 3;
  const auto process = taught_process(spec);
  for (int i = 0; i < 12; ++i) {
    const ShapeKey shape{2 + i % 4, 50 + 9 * i};
    process->step(shape, process->budget_at(shape, 0.5));
  }
  const ModelView view = view_of(*process);
  const auto explanation = view.explain("5x180", process->budget_at({5, 180}, 0.5));
  ASSERT_TRUE(explanation);
  ASSERT_EQ(explanation->menu.size(), 3U);
  for (std::size_t k = 0; k < 3; ++k) {
    const MenuExplanation& item = explanation->menu[k];
    EXPECT_EQ(item.mode, Mode::selective(static_cast<std::uint16_t>(k)));
    EXPECT_EQ(item.layer_class, "encoder");
    EXPECT_GT(item.freed_bytes, Bytes(0));
    EXPECT_GT(item.extra_seconds, 0);
    EXPECT_EQ(item.what, "drops some");
  }
  const auto json = nlohmann::json::parse(to_json(*explanation, "k3v9q2"));
  for (const char* field : {"class", "mode", "freed_bytes", "extra_seconds", "what"}) {
    EXPECT_TRUE(json["menu"][0].contains(field)) << field;
  }
}

TEST(ModelView, AnswersManyThreads) {
  const auto process = taught_process();
  const ModelView view = view_of(*process);
  const auto expected = view.estimate("5x180", process->budget_at({5, 180}, 0.5));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto again = view.estimate("5x180", expected->budget_bytes);
        EXPECT_EQ(again->predicted_peak_bytes, expected->predicted_peak_bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pudica::daemon::testing
