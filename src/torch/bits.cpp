#include "torch/bits.h"

#include <algorithm>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>

namespace pudica::hooks {
namespace {

constexpr std::int64_t kBlock = 64;  // elements packed into one word

// Packs `count` (<= 64) elements; adds those that are neither 0 nor `value` to `others`.
template <typename Word>
std::uint64_t pack_block(const Word* in, std::int64_t count, Word value, std::uint64_t& others) {
  std::uint64_t word = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t set = in[i] == value ? 1U : 0U;
    word |= set << static_cast<unsigned>(i);
    others += (set == 0 && in[i] != 0) ? 1U : 0U;
  }
  return word;
}

#if defined(__x86_64__)
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

__attribute__((target("avx2"))) __m256i load(const void* in) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(in));
}

// 64 elements at once. Overloads by element size: which equal `value`, as bits; elements that are
// neither 0 nor `value` leave ones in `strange`.
__attribute__((target("avx2"))) std::uint64_t pack_vector(const std::uint32_t* in,
                                                          std::uint32_t value, __m256i& strange) {
  const __m256i wanted = _mm256_set1_epi32(static_cast<int>(value));
  std::uint64_t word = 0;
  for (unsigned part = 0; part < 8; ++part) {
    const __m256i words = load(in + std::size_t{8} * part);
    const __m256i equal = _mm256_cmpeq_epi32(words, wanted);
    strange = _mm256_or_si256(strange, _mm256_andnot_si256(equal, words));
    const auto mask = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(equal)));
    word |= static_cast<std::uint64_t>(mask) << (8 * part);
  }
  return word;
}

__attribute__((target("avx2"))) std::uint64_t pack_vector(const std::uint16_t* in,
                                                          std::uint16_t value, __m256i& strange) {
  const __m256i wanted = _mm256_set1_epi16(static_cast<std::int16_t>(value));
  std::uint64_t word = 0;
  for (unsigned part = 0; part < 2; ++part) {
    const __m256i low = load(in + std::size_t{32} * part);
    const __m256i high = load(in + std::size_t{32} * part + 16);
    const __m256i low_equal = _mm256_cmpeq_epi16(low, wanted);
    const __m256i high_equal = _mm256_cmpeq_epi16(high, wanted);
    strange = _mm256_or_si256(strange, _mm256_andnot_si256(low_equal, low));
    strange = _mm256_or_si256(strange, _mm256_andnot_si256(high_equal, high));
    // packs works within halves of 128 bits: the permutation puts the quarters in order.
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low_equal, high_equal), 0xD8);
    const auto mask = static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
    word |= static_cast<std::uint64_t>(mask) << (32 * part);
  }
  return word;
}

__attribute__((target("avx2"))) std::uint64_t pack_vector(const std::uint8_t* in,
                                                          std::uint8_t value, __m256i& strange) {
  const __m256i wanted = _mm256_set1_epi8(static_cast<char>(value));
  std::uint64_t word = 0;
  for (unsigned part = 0; part < 2; ++part) {
    const __m256i bytes = load(in + std::size_t{32} * part);
    const __m256i equal = _mm256_cmpeq_epi8(bytes, wanted);
    strange = _mm256_or_si256(strange, _mm256_andnot_si256(equal, bytes));
    const auto mask = static_cast<std::uint32_t>(_mm256_movemask_epi8(equal));
    word |= static_cast<std::uint64_t>(mask) << (32 * part);
  }
  return word;
}

// Whole blocks only. Looks at `strange` now and then: what has other values ends early.
template <typename Word>
__attribute__((target("avx2"))) bool pack_blocks(const Word* in, std::int64_t blocks, Word value,
                                                 std::uint64_t* out) {
  constexpr std::int64_t kLook = 64;
  __m256i strange = _mm256_setzero_si256();
  for (std::int64_t block = 0; block < blocks; ++block) {
    out[block] = pack_vector(in + block * kBlock, value, strange);
    if (block % kLook == 0 && _mm256_testz_si256(strange, strange) == 0) return false;
  }
  return _mm256_testz_si256(strange, strange) != 0;
}
#else
bool has_avx2() { return false; }
template <typename Word>
bool pack_blocks(const Word*, std::int64_t, Word, std::uint64_t*) {
  return false;
}
#endif

// False: an element is neither 0 nor `value`.
template <typename Word>
bool pack(const void* from, std::int64_t count, Word value, std::uint64_t* out) {
  const auto* const in = static_cast<const Word*>(from);
  std::int64_t block = 0;
  if (has_avx2()) {
    block = count / kBlock;
    if (!pack_blocks(in, block, value, out)) return false;
  }
  std::uint64_t others = 0;
  for (; block * kBlock < count; ++block) {
    const std::int64_t begin = block * kBlock;
    out[block] = pack_block(in + begin, std::min(kBlock, count - begin), value, others);
    if (others != 0) return false;
  }
  return true;
}

// Plain enough for the compiler to vectorise; AVX2 is chosen when the program starts.
template <typename Word>
[[gnu::always_inline]] inline void unpack(const std::uint64_t* in, std::int64_t count, Word value,
                                          Word* out) {
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::uint64_t word = *in++;
    const std::int64_t end = std::min(kBlock, count - begin);
    for (std::int64_t i = 0; i < end; ++i) {
      const auto set = static_cast<Word>(0) - static_cast<Word>((word >> i) & 1U);
      out[begin + i] = static_cast<Word>(set & value);
    }
  }
}

// Dispatch is at the call and not by an ifunc (target_clones): sanitizers do not support code that
// runs while symbols are being resolved.
#if defined(__x86_64__)
__attribute__((target("avx2"))) void unpack4_avx2(const std::uint64_t* in, std::int64_t n,
                                                  std::uint32_t value, std::uint32_t* out) {
  unpack(in, n, value, out);
}
#endif

void unpack4(const std::uint64_t* in, std::int64_t n, std::uint32_t value, std::uint32_t* out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    unpack4_avx2(in, n, value, out);
    return;
  }
#endif
  unpack(in, n, value, out);
}

// 0: there is none.
template <typename Word>
Word first_not_zero(const Word* in, std::int64_t count) {
  const Word* const end = in + count;
  const Word* const found = std::find_if(in, end, [](Word word) { return word != 0; });
  return found == end ? Word{0} : *found;
}

// Sets the value; false: there are two beside 0.
template <typename Word>
bool pack_all(const c10::Storage& storage, Bits& bits, std::uint64_t* out) {
  const auto* const in = static_cast<const Word*>(storage.data());
  const std::int64_t count = bits.bytes / bits.item_bytes;
  const Word value = first_not_zero(in, count);
  bits.value = value;
  return pack(in, count, value == 0 ? Word{1} : value, out);
}

c10::Storage new_storage(std::int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte)).storage();
}

// Set while libraries are loaded, read from then on.
BitsOfDevice& cuda_bits() {
  static BitsOfDevice functions;
  return functions;
}

}  // namespace

std::optional<Bits> encode_bits(const c10::Storage& storage, std::int64_t item_bytes,
                                Contents contents) {
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  if (bytes == 0 || storage.data() == nullptr) return std::nullopt;
  if ((item_bytes != 1 && item_bytes != 2 && item_bytes != 4) || bytes % item_bytes != 0) {
    return std::nullopt;
  }
  if (storage.device().is_cuda() && cuda_bits().encode != nullptr) {
    return cuda_bits().encode(storage, item_bytes, contents);
  }
  if (!storage.device().is_cpu()) return std::nullopt;
  const std::int64_t count = bytes / item_bytes;
  Bits bits;
  bits.bytes = bytes;
  bits.item_bytes = item_bytes;
  bits.packed = at::empty({(count + kBlock - 1) / kBlock}, at::TensorOptions().dtype(at::kLong));
  auto* const out = static_cast<std::uint64_t*>(bits.packed.data_ptr());
  const bool exact = item_bytes == 4   ? pack_all<std::uint32_t>(storage, bits, out)
                     : item_bytes == 2 ? pack_all<std::uint16_t>(storage, bits, out)
                                       : pack_all<std::uint8_t>(storage, bits, out);
  if (!exact) return std::nullopt;
  return bits;
}

bool has_both_values(const Bits& bits) {
  const at::Tensor words = bits.packed.narrow(0, 0, bits.bytes / bits.item_bytes / kBlock);
  return bits.value != 0 && !words.eq(-1).all().item<bool>();
}

c10::Storage decode_bits(const Bits& bits) {
  if (bits.packed.is_cuda()) return cuda_bits().decode(bits);
  c10::Storage storage = new_storage(bits.bytes);
  const auto* const in = static_cast<const std::uint64_t*>(bits.packed.const_data_ptr());
  void* const out = storage.mutable_data();
  const std::int64_t count = bits.bytes / bits.item_bytes;
  if (bits.item_bytes == 4) {
    unpack4(in, count, bits.value, static_cast<std::uint32_t*>(out));
  } else if (bits.item_bytes == 2) {
    unpack(in, count, static_cast<std::uint16_t>(bits.value), static_cast<std::uint16_t*>(out));
  } else {
    unpack(in, count, static_cast<std::uint8_t>(bits.value), static_cast<std::uint8_t*>(out));
  }
  return storage;
}

void register_cuda_bits(const BitsOfDevice& functions) { cuda_bits() = functions; }

}  // namespace pudica::hooks
