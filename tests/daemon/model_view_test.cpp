#include "inspect/model_view.h"

#include <memory>
#include <random>
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
  ASSERT_TRUE(estimate->all_full);
  EXPECT_EQ(estimate->all_full->peak_bytes, process->budget_at(shape, 0.0).count());
  EXPECT_GE(estimate->all_full->time_ns, estimate->frontier.front().time_ns);
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

// What a run is told of its next steps while it learns: no step peaks higher than was told, at any
// budget that its layers can be planned for, and what is told to be settled is what comes.
TEST(ModelView, NoStepPeaksAboveTheUpperBound) {
  std::mt19937_64 random(1);
  int unsettled = 0;
  int planned = 0;  // and settled
  for (int run = 0; run < 20; ++run) {
    // With a menu that is still to come, and without one.
    ModelViewOptions options;
    if (run % 2 == 0) options.controller.menu = {Mode::Kind::kKeep, Mode::Kind::kFull};
    Process process({}, options.controller);
    for (int step = 0; step < 24; ++step) {
      const ShapeKey shape{2 + static_cast<std::int64_t>(random() % 6),
                           48 + static_cast<std::int64_t>(random() % 200)};
      const double share = 0.1 + 0.1 * static_cast<double>(random() % 10);
      const Bytes budget = process.budget_at(shape, share) + Bytes(4096);
      const auto view = ModelView::from_state(process.state(), kFingerprint, options);
      ASSERT_TRUE(view);
      const auto told = view->estimate(shape.to_string(), budget);
      const StepRecord record = process.step(shape, budget);
      if (!told) continue;  // it has learned too little to say
      EXPECT_LE(told->predicted_peak_bytes, told->upper_peak_bytes);
      if (!told->fits) continue;
      EXPECT_LE(record.measured_bytes, told->upper_peak_bytes)
          << "run " << run << " step " << step << " " << shape.to_string();
      if (!told->settled) {
        ++unsettled;
        continue;
      }
      planned += told->extra_seconds > 0 ? 1 : 0;
      EXPECT_NEAR(static_cast<double>(record.measured_bytes.count()) /
                      static_cast<double>(told->predicted_peak_bytes.count()),
                  1.0, 0.002)
          << "run " << run << " step " << step << " " << shape.to_string();
    }
  }
  EXPECT_GT(unsettled, 20) << "the doubt was tried";
  EXPECT_GT(planned, 20) << "and certainty";
}

// Keeping all is one number, in the answer and in the reason of the plan.
TEST(ModelView, TellsOneFigureOfKeepingAll) {
  Process process;
  process.step({4, 64});
  process.step({5, 96});
  for (const std::int64_t length : {80, 180, 300}) {
    const ShapeKey shape{5, length};
    const auto view = view_of(process);
    for (const double share : {0.3, 0.6, 2.0}) {
      const Bytes budget = process.budget_at(shape, share);
      const auto estimate = view.estimate(shape.to_string(), budget);
      const auto explanation = view.explain(shape.to_string(), budget);
      ASSERT_TRUE(estimate) << estimate.error().message;
      ASSERT_TRUE(explanation) << explanation.error().message;
      EXPECT_EQ(explanation->keep_all_peak_bytes, estimate->keep_all_peak_bytes);
      const std::string figure = "keeping all needs " + format_bytes(estimate->keep_all_peak_bytes);
      if (explanation->reason.find("keeping all needs") == std::string::npos) continue;
      EXPECT_NE(explanation->reason.find(figure), std::string::npos) << explanation->reason;
    }
  }
}

TEST(ModelView, APlanThatTheRunHoldsIsTheOneThatIsTaken) {
  const auto process = taught_process();
  ModelViewOptions options;
  options.controller.menu = {Mode::Kind::kKeep, Mode::Kind::kFull};
  const Bytes budget = process->budget_at({5, 180}, 0.5);
  auto estimate = view_of(*process, options).estimate("5x180", budget);
  ASSERT_TRUE(estimate);
  ASSERT_TRUE(estimate->settled);
  HeldPlan plan;
  plan.id = 12;
  plan.modes.assign(8, Mode::full());
  plan.predicted_peak_bytes = estimate->predicted_peak_bytes - Bytes(100);
  plan.measured_peak_bytes = estimate->predicted_peak_bytes - Bytes(60);
  take_held_plan(*estimate, plan);
  EXPECT_EQ(estimate->plan_id, 12U);
  EXPECT_EQ(estimate->predicted_peak_bytes, *plan.measured_peak_bytes);
  EXPECT_EQ(estimate->upper_peak_bytes, *plan.measured_peak_bytes);
  EXPECT_EQ(estimate->modes.at(Mode::full()), 8);
  EXPECT_TRUE(estimate->fits);
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
                                                 "upper_peak_bytes",
                                                 "settled",
                                                 "plan_id",
                                                 "measured_peak_bytes",
                                                 "learned_step",
                                                 "extra_seconds",
                                                 "modes",
                                                 "frontier",
                                                 "all_full"};
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

// Has taken `steps` half-way between floor and keep-all, with three selective modes on its menus.
std::unique_ptr<Process> process_with_menus(int steps) {
  SyntheticSpec spec;
  spec.menu_steps = 3;
  auto process = taught_process(spec);
  for (int i = 0; i < steps; ++i) {
    const ShapeKey shape{2 + i % 4, 50 + 9 * i};
    process->step(shape, process->budget_at(shape, 0.5));
  }
  return process;
}

TEST(ModelView, ExplainsTheSelectiveModesOfAClass) {
  const auto process = process_with_menus(12);
  const std::shared_ptr<Controller> here(&process->controller(), [](Controller*) {});
  const Bytes budget = process->budget_at({5, 180}, 0.5);
  const auto explanation = ModelView::of(here).explain("5x180", budget);
  const auto from_state = view_of(*process).explain("5x180", budget);
  ASSERT_TRUE(explanation && from_state);
  ASSERT_EQ(explanation->menu.size(), 3U);
  ASSERT_EQ(from_state->menu.size(), 3U);
  for (std::size_t k = 0; k < 3; ++k) {
    const MenuExplanation& item = explanation->menu[k];
    EXPECT_EQ(item.mode, Mode::selective(static_cast<std::uint16_t>(k)));
    EXPECT_EQ(item.layer_class, "encoder");
    EXPECT_GT(item.freed_bytes, Bytes(0));
    EXPECT_GT(item.extra_seconds, 0);
    EXPECT_EQ(item.what, "drops some");
    EXPECT_EQ(item.measured, k < 2) << "no plan was better off with the last";
    EXPECT_EQ(from_state->menu[k].freed_bytes, item.freed_bytes);
    EXPECT_DOUBLE_EQ(from_state->menu[k].extra_seconds, item.extra_seconds);
    EXPECT_EQ(from_state->menu[k].measured, item.measured);
  }
  const auto json = nlohmann::json::parse(to_json(*explanation, "k3v9q2"));
  for (const char* field : {"class", "mode", "freed_bytes", "extra_seconds", "what", "measured"}) {
    EXPECT_TRUE(json["menu"][0].contains(field)) << field;
  }
}

// What is settled in the process is settled to whoever reads its state, modes that no plan wanted
// or not.
TEST(ModelView, AStateSettlesWhatTheProcessSettles) {
  const auto process = process_with_menus(20);
  const std::shared_ptr<Controller> here(&process->controller(), [](Controller*) {});
  const ModelView live = ModelView::of(here);
  const ModelView read = view_of(*process);
  int settled = 0;
  for (const double share : {0.1, 0.3, 0.5, 0.7, 0.9}) {
    const Bytes budget = process->budget_at({5, 180}, share);
    const auto inside = live.estimate("5x180", budget);
    const auto outside = read.estimate("5x180", budget);
    ASSERT_TRUE(inside && outside) << share;
    EXPECT_EQ(outside->settled, inside->settled) << share;
    EXPECT_EQ(outside->upper_peak_bytes, inside->upper_peak_bytes) << share;
    settled += inside->settled ? 1 : 0;
  }
  EXPECT_GT(settled, 1) << "short steps were tried that rest on what is known";
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
