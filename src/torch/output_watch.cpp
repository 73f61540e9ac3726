#include "torch/output_watch.h"

#include <algorithm>
#include <iterator>

namespace pudica::hooks {

OutputWatch::Watched OutputWatch::watched(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.device() != device) return {};
  const c10::Storage& storage = tensor.storage();
  return {storage.getWeakStorageImpl(), static_cast<std::int64_t>(storage.nbytes()),
          storage.data()};
}

bool OutputWatch::contains(const std::vector<Watched>& all, const Watched& one) {
  const c10::StorageImpl* const storage = one.storage._unsafe_get_target();
  return storage != nullptr && std::ranges::any_of(all, [storage](const Watched& other) {
           return other.storage._unsafe_get_target() == storage;
         });
}

std::vector<const void*> OutputWatch::called(std::int32_t layer,
                                             const std::vector<at::Tensor>& inputs,
                                             at::Device device, const MadeByLast& made_by_last) {
  std::vector<const void*> left;
  std::vector<Watched>& read = layers_[layer].inputs;
  for (const at::Tensor& tensor : inputs) read.push_back(watched(tensor, device));
  const auto found = layers_.find(layer - 1);
  if (found == layers_.end()) return left;
  Layer& before = found->second;
  for (const Watched& input : read) {
    const bool is_known =
        input.data == nullptr || contains(before.inputs, input) || contains(before.outputs, input);
    if (is_known || !made_by_last || !made_by_last(input.data)) continue;
    before.outputs.push_back(input);
    made_.push_back(input.data);
    left.push_back(input.data);
  }
  for (const Watched& input : read) {
    const bool both = input.data != nullptr && contains(before.inputs, input);
    const auto is_in = [&input](const std::vector<const void*>& places) {
      return std::ranges::find(places, input.data) != places.end();
    };
    if (both && !is_in(made_) && !is_in(shared_)) shared_.push_back(input.data);
  }
  const auto above = layers_.find(layer - 2);
  for (std::size_t i = 0; i < std::min(read.size(), before.inputs.size()); ++i) {
    const Watched& input = before.inputs[i];
    if (!contains(before.outputs, read[i]) || input.storage.expired()) continue;
    if (above != layers_.end() && contains(above->second.outputs, input)) continue;
    if (!contains(before.given, input)) before.given.push_back(input);
  }
  std::erase_if(before.outputs, [&read](const Watched& output) { return !contains(read, output); });
  // Where it reads none that was returned, something in between does.
  const bool reads_any = std::ranges::any_of(
      before.returned, [&read](const Watched& output) { return contains(read, output); });
  for (std::size_t i = 0; reads_any && i < before.returned.size(); ++i) before.unread.push_back(i);
  for (auto& [earlier, made] : layers_) {
    std::erase_if(made.unread, [&, &all = made.returned](std::size_t i) {
      return all[i].data == nullptr || contains(read, all[i]);
    });
  }
  return left;
}

void OutputWatch::made(std::int32_t layer, const std::vector<at::Tensor>& outputs,
                       at::Device device) {
  Layer& made = layers_[layer];
  std::vector<Watched> all;
  for (const at::Tensor& tensor : outputs) {
    Watched output = watched(tensor, device);
    made.returned.emplace_back();
    if (output.storage.expired() || contains(all, output)) continue;
    if (!contains(made.inputs, output)) {
      made.returned.back() = output;
      made.outputs.push_back(output);
      made_.push_back(output.data);
    }
    all.push_back(std::move(output));
  }
  if (const auto before = layers_.find(layer - 1); before != layers_.end()) {
    std::erase_if(before->second.outputs,
                  [&all](const Watched& output) { return contains(all, output); });
  }
}

void OutputWatch::begins(std::int32_t layer) {
  ends();
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return;
  Layer& begun = found->second;
  if (std::next(found) == layers_.end()) {
    // No layer behind it has told what it does not read.
    const std::vector<const void*> unread_places = unread(layer);
    std::erase_if(begun.outputs, [&unread_places](const Watched& output) {
      return std::ranges::find(unread_places, output.data) != unread_places.end();
    });
  }
  std::erase_if(begun.outputs, [&begun](const Watched& output) {
    if (!output.storage.expired()) return false;
    begun.gone_early.push_back(output.data);
    return true;
  });
  under_way_ = layer;
}

void OutputWatch::ends() {
  const auto found = layers_.find(under_way_);
  under_way_ = -1;
  if (found == layers_.end()) return;
  Layer& layer = found->second;
  for (const Watched& output : layer.outputs) {
    if (output.storage.expired()) layer.held_bytes += output.bytes;
  }
  for (const Watched& input : layer.given) {
    if (!input.storage.expired()) layer.left_bytes += input.bytes;
  }
}

std::int64_t OutputWatch::held_bytes(std::int32_t layer) const {
  const auto found = layers_.find(layer);
  return found == layers_.end() ? 0 : found->second.held_bytes;
}

std::vector<const void*> OutputWatch::gone_early(std::int32_t layer) const {
  const auto found = layers_.find(layer);
  return found == layers_.end() ? std::vector<const void*>() : found->second.gone_early;
}

std::vector<const void*> OutputWatch::unread(std::int32_t layer) const {
  std::vector<const void*> places;
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return places;
  const std::vector<Watched>& returned = found->second.returned;
  const bool is_last = std::next(found) == layers_.end();
  const auto before = is_last ? layers_.find(layer - 1) : found;
  if (before == layers_.end() || before->second.returned.size() != returned.size()) return places;
  for (const std::size_t i : before->second.unread) {
    const bool is_like = !is_last || returned[i].bytes == before->second.returned[i].bytes;
    if (returned[i].data != nullptr && is_like) places.push_back(returned[i].data);
  }
  return places;
}

std::vector<const void*> OutputWatch::places(std::int32_t layer) const {
  std::vector<const void*> places;
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return places;
  for (const Watched& output : found->second.outputs) places.push_back(output.data);
  return places;
}

std::vector<const void*> OutputWatch::live_places() const {
  std::vector<const void*> places;
  const auto note = [&places](const Watched& one) {
    if (one.data == nullptr || one.storage.expired()) return;
    if (std::ranges::find(places, one.data) == places.end()) places.push_back(one.data);
  };
  for (const auto& [number, layer] : layers_) {
    for (const Watched& output : layer.outputs) note(output);
    for (const Watched& input : layer.inputs) note(input);
  }
  return places;
}

std::int64_t OutputWatch::left_bytes(std::int32_t layer) const {
  const auto found = layers_.find(layer);
  return found == layers_.end() ? 0 : found->second.left_bytes;
}

}  // namespace pudica::hooks
