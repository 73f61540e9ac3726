// What the package finds under torch.classes.pudica and torch.ops.pudica.
#include <torch/library.h>

#include "base/log.h"
#include "native/attachment.h"
#include "native/log_lines.h"
#include "native/policy_choice.h"
#include "native/rerun_desk.h"
#include "native/settings.h"
#include "policy/policy_spec.h"

namespace pudica::python {
namespace {

void open_reruns(bool is_open) { RerunDesk::instance().open(is_open); }
bool rerun_is_running() { return RerunDesk::is_running(); }
std::vector<at::Tensor> rerun_inputs() { return RerunDesk::instance().inputs(); }
void rerun_done(std::vector<at::Tensor> outputs) {
  RerunDesk::instance().set_outputs(std::move(outputs));
}
void rerun_failed(std::string message) { RerunDesk::instance().set_failure(message); }
std::vector<std::int64_t> dead_tokens() { return RerunDesk::instance().take_dead(); }
std::int64_t bytes_in_use_on(std::string device) {
  return bytes_in_use(c10::Device(device)).count();
}
std::int64_t peak_bytes_on(std::string device) {
  return peak_bytes_in_use(c10::Device(device)).count();
}
void reset_peak_bytes_on(std::string device) { reset_peak_bytes(c10::Device(device)); }
std::vector<std::string> all_policies() { return policy_names(); }
void expand_segments_of(std::string device) {
  const auto done = expand_segments(c10::Device(device));
  if (!done) throw std::runtime_error(done.error().message);
}

}  // namespace
}  // namespace pudica::python

TORCH_LIBRARY(pudica, library) {
  using namespace pudica::python;  // NOLINT(google-build-using-namespace)
  library.class_<Attachment>("Attachment")
      .def(torch::init<std::string, std::vector<at::Tensor>>())
      .def("begin_step", &Attachment::begin_step)
      .def("waits", &Attachment::waits)
      .def("went_back", &Attachment::went_back)
      .def("end_step", &Attachment::end_step)
      .def("rest", &Attachment::rest)
      .def("passes", &Attachment::passes)
      .def("wake", &Attachment::wake)
      .def("rested", &Attachment::rested)
      .def("enter", &Attachment::enter)
      .def("leave", &Attachment::leave)
      .def("abandon", &Attachment::abandon)
      .def("count_residents", &Attachment::count_residents)
      .def("set_budget", &Attachment::set_budget)
      .def("range_bytes", &Attachment::range_bytes)
      .def("budget", &Attachment::budget)
      .def("detach", &Attachment::detach)
      .def("snapshot", &Attachment::snapshot)
      .def("taken_plans", &Attachment::taken_plans)
      .def("stats", &Attachment::stats)
      .def("explain", &Attachment::explain)
      .def("estimate", &Attachment::estimate)
      .def("serialize", &Attachment::serialize)
      .def("restore", &Attachment::restore);
  library.def("rerun(int token) -> int");  // its kernel is Python's
  library.def("open_reruns", &open_reruns);
  library.def("rerun_is_running", &rerun_is_running);
  library.def("rerun_inputs", &rerun_inputs);
  library.def("rerun_done", &rerun_done);
  library.def("rerun_failed", &rerun_failed);
  library.def("note_layer_state", [] { pudica::note_layer_state(); });
  library.def("protect_in_trial(Tensor[] tensors) -> ()",
              [](const std::vector<at::Tensor>& tensors) { pudica::protect_in_trial(tensors); });
  library.def("dead_tokens", &dead_tokens);
  library.def("install_meter", [] { pudica::install_meter(); });
  library.def("bytes_in_use", &bytes_in_use_on);
  library.def("peak_bytes", &peak_bytes_on);
  library.def("reset_peak_bytes", &reset_peak_bytes_on);
  library.def("expand_segments", &expand_segments_of);
  library.def("configured", &configured);
  library.def("read_budget", &read_budget);
  library.def("attachable_policies", &attachable_policies);
  library.def("policy_names", &all_policies);
  library.def("collect_log", &collect_log);
  library.def("log_lines", &log_lines);
}
