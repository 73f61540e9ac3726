// The runtime: captures, and graphs, which are what was issued while they were captured, in the
// order of the calls.
#include <cuda_runtime_api.h>

#include "emulated_device/counts.h"
#include "emulated_device/state.h"
#include "emulated_device/streams.h"

using namespace pudica::emulated;

namespace {

struct Graph {
  std::vector<Work> nodes;
};
Graph& graph_of(cudaGraph_t handle) { return *reinterpret_cast<Graph*>(handle); }
Graph& graph_of(cudaGraphExec_t handle) { return *reinterpret_cast<Graph*>(handle); }

}  // namespace

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  *mode = exchange_capture_mode(*mode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return say(begin_capture(stream, mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const Capture* ended = nullptr;
  const cudaError_t error = end_capture(stream, ended);
  if (ended != nullptr) *graph = reinterpret_cast<cudaGraph_t>(new Graph{ended->nodes});
  return say(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = capture_state(stream).status;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     std::size_t* count) {
  const CaptureState state = capture_state(stream);
  *status = state.status;
  if (state.status == cudaStreamCaptureStatusNone) return cudaSuccess;
  if (id != nullptr) *id = state.id;
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                          unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new Graph(graph_of(graph)));
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const Work& node : graph_of(graph).nodes) issue(stream, node);
  launches() += graph_of(graph).nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &graph_of(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete &graph_of(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph_of(graph).nodes.size();
  return cudaSuccess;
}

}  // extern "C"
