#include "train/sha256.h"

#include <span>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace pudica::train {
namespace {

std::string digest_of(std::string_view text) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(text)));
  return digest.hex_digest();
}

// The vectors of FIPS 180-4's examples.
TEST(Sha256, MatchesThePublishedVectors) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotCareHowTheBytesArrive) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const auto whole = std::string_view(text).substr(0, length);
    for (const std::size_t piece : {1UL, 3UL, 63UL, 64UL, 65UL}) {
      Sha256 digest;
      for (std::size_t at = 0; at < length; at += piece) {
        digest.update(std::as_bytes(std::span(whole.substr(at, piece))));
      }
      ASSERT_EQ(digest.hex_digest(), digest_of(whole)) << length << " by " << piece;
    }
  }
}

}  // namespace
}  // namespace pudica::train
