// What of the reserved bytes cannot be given back.
#include "cuda/pinned_pages.h"

#include <gtest/gtest.h>

namespace pudica::testing {
namespace {

TEST(PinnedPages, OneBlockHoldsAWholeSegment) {
  hooks::PinnedPages pages;
  pages.reserve(1000, 100, 0);
  EXPECT_EQ(pages.bytes(), 0);
  pages.take(1000, 10);
  pages.take(1090, 10);
  EXPECT_EQ(pages.bytes(), 100);
  pages.give(1000, 10);
  EXPECT_EQ(pages.bytes(), 100);
  pages.give(1090, 10);
  EXPECT_EQ(pages.bytes(), 0);
}

TEST(PinnedPages, ABlockHoldsEveryPageThatItTouches) {
  hooks::PinnedPages pages;
  pages.reserve(1000, 60, 20);
  pages.reserve(1060, 20, 20);  // mapped later, behind it
  pages.take(1019, 1);
  EXPECT_EQ(pages.bytes(), 20);
  pages.take(1039, 22);
  EXPECT_EQ(pages.bytes(), 80);
  pages.give(1019, 1);
  EXPECT_EQ(pages.bytes(), 60);
}

TEST(PinnedPages, PagesGoBackOneByOne) {
  hooks::PinnedPages pages;
  pages.reserve(1000, 100, 20);
  pages.take(1000, 20);
  pages.take(1080, 20);
  pages.release(1020, 40);
  EXPECT_EQ(pages.bytes(), 40);
  pages.take(1025, 10);  // nobody's
  EXPECT_EQ(pages.bytes(), 40);
  pages.release(1000, 20);
  EXPECT_EQ(pages.bytes(), 20) << "whoever had it";
  pages.reserve(1020, 20, 20);
  pages.take(1020, 1);
  EXPECT_EQ(pages.bytes(), 40);
}

}  // namespace
}  // namespace pudica::testing
