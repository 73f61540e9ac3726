#include <gtest/gtest.h>
#include "pudica/predictor.h"
TEST(A,B){ auto p=pudica::make_online_predictor({}); EXPECT_TRUE(p); }
