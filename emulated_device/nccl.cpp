// NCCL, as far as one process goes: every other rank is taken to be this one's mirror. What a
// collective brings from others is what this rank has itself, so that one process runs a rank of
// many (or several processes, who do not meet here). Sums are not added up.
#include <algorithm>
#include <cstddef>
#include <nccl.h>

#include <cuda_runtime_api.h>

#include "emulated_device/copies.h"
#include "emulated_device/memory.h"
#include "emulated_device/settings.h"
#include "emulated_device/state.h"

using namespace pudica::emulated;

struct ncclComm {
  int ranks = 1;
  int rank = 0;
  int device = 0;
};

namespace {

std::size_t bytes_of(std::size_t count, ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return count;
    case ncclFloat16:
    case ncclBfloat16:
      return 2 * count;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8 * count;
    default:
      return 4 * count;
  }
}

// What goes over one rank's link, in either direction: NCCL's own reckoning of a ring.
double ring_us(double bytes, ncclComm_t comm) {
  const double others = comm->ranks - 1;
  constexpr double kUsPerGbS = 1e-3;
  const double passed = bytes * others / comm->ranks;
  return std::max(settings().launch_us, kUsPerGbS * passed / settings().card.link_gb_s);
}

struct Transfer {
  const void* from;
  void* to;
  std::size_t bytes;
  double microseconds;
};

ncclResult_t transfer(const Transfer& what, cudaStream_t stream) {
  const Copy copy{.to = what.to, .from = what.from, .bytes = what.bytes};
  const cudaError_t error = issue_copy_taking(copy, what.microseconds, stream);
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t begin(ncclComm_t* comm, int ranks, int rank) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  *comm = new ncclComm{ranks, rank, current_device()};
  return ncclSuccess;
}

ncclResult_t end(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = ncclUniqueId{};
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "error of the emulated NCCL";
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId, int rank) {
  return begin(comm, ranks, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId, int rank,
                                    ncclConfig_t*) {
  return begin(comm, ranks, rank);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int, ncclUniqueId*,
                                      ncclConfig_t*) {
  return begin(comm, ranks, rank);
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return end(comm); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** at, std::size_t bytes) {
  return allocate(at, bytes, Kind::kDevice) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* at) {
  return release(at, Kind::kDevice) == cudaSuccess ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* operation, void*, ncclDataType_t,
                                      ncclScalarResidence_t, ncclComm_t) {
  *operation = ncclSum;
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  return transfer({from, to, bytes, ring_us(2.0 * static_cast<double>(bytes), comm)}, stream);
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t, int root, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  if (comm->rank != root) to = const_cast<void*>(from);  // which is not written elsewhere
  return transfer({from, to, bytes, ring_us(static_cast<double>(bytes), comm)}, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  if (comm->rank != root) from = to;  // the root has what this rank has
  return transfer({from, to, bytes, ring_us(static_cast<double>(bytes), comm)}, stream);
}

ncclResult_t ncclBcast(void* at, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(at, at, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  for (int rank = 0; rank < comm->ranks; ++rank) {
    char* const place = static_cast<char*>(to) + static_cast<std::size_t>(rank) * bytes;
    const ncclResult_t result =
        transfer({from, place, bytes, ring_us(static_cast<double>(bytes), comm)}, stream);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  const char* const mine =
      static_cast<const char*>(from) + static_cast<std::size_t>(comm->rank) * bytes;
  const double all = static_cast<double>(bytes) * comm->ranks;
  return transfer({mine, to, bytes, ring_us(all, comm)}, stream);
}

// Each sends this rank what this rank sends it.
ncclResult_t ncclAlltoAll(const void* from, void* to, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type) * static_cast<std::size_t>(comm->ranks);
  return transfer({from, to, bytes, ring_us(static_cast<double>(bytes), comm)}, stream);
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int,
                      ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  const double microseconds = ring_us(static_cast<double>(bytes), comm);
  return transfer({from, const_cast<void*>(from), bytes, microseconds}, stream);
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int, ncclComm_t comm,
                      cudaStream_t stream) {
  const std::size_t bytes = bytes_of(count, type);
  return transfer({to, to, bytes, ring_us(static_cast<double>(bytes), comm)}, stream);
}

}  // extern "C"
