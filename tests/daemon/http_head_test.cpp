#include "daemon/http_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica::daemon {
namespace {

using testing::HasSubstr;
using testing::Not;

CheckedHead check(const std::string& headers, const HeadLimits& limits = {}) {
  return check_head("GET / HTTP/1.1\r\n" + headers + "\r\n", limits);
}

TEST(HttpHead, EndsBehindItsBlankLine) {
  EXPECT_EQ(end_of_head("GET / HTTP/1.1\r\nA: b\r\n\r\nbody"), 24U);
  EXPECT_EQ(end_of_head("GET / HTTP/1.1\r\nA: b\r\n"), std::string::npos);
}

TEST(HttpHead, PassesAnOrdinaryHead) {
  const CheckedHead head = check("Host: localhost:9400\r\nContent-Length: 12\r\n");
  EXPECT_EQ(head.status, 0) << head.message;
  EXPECT_EQ(head.host, "localhost");
  EXPECT_EQ(head.content_length, 12U);
  EXPECT_EQ(head.head, "GET / HTTP/1.1\r\nHost: localhost:9400\r\nContent-Length: 12\r\n\r\n");
}

TEST(HttpHead, LeavesOutWhatHasNoBound) {
  const CheckedHead head =
      check("Range: bytes=0-1,0-1\r\nCONTENT-TYPE: multipart/form-data\r\naccept-encoding: br\r\n");
  EXPECT_EQ(head.status, 0);
  EXPECT_THAT(head.head, Not(HasSubstr("bytes=")));
  EXPECT_THAT(head.head, Not(HasSubstr("multipart")));
  EXPECT_THAT(head.head, Not(HasSubstr("br\r")));
}

TEST(HttpHead, SaysThatThereIsNoBodyWhereNoLengthIsGiven) {
  EXPECT_THAT(check("").head, HasSubstr("Content-Length: 0\r\n"));
  EXPECT_THAT(check("Transfer-Encoding: chunked\r\n").head, Not(HasSubstr("Content-Length")));
}

TEST(HttpHead, TellsAddressesFromPorts) {
  EXPECT_EQ(check("Host: [::1]:9400\r\n").host, "[::1]");
  EXPECT_EQ(check("Host: evil.example:80\r\n").host, "evil.example");
}

struct Refused {
  const char* headers;
  int status;
};
class RefusedHead : public testing::TestWithParam<Refused> {};

TEST_P(RefusedHead, IsNamed) {
  const CheckedHead head = check(GetParam().headers, {.lines = 3, .line_bytes = 40});
  EXPECT_EQ(head.status, GetParam().status);
  EXPECT_NE(head.message, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedHead,
    testing::Values(Refused{"Content-Length: 1\r\nContent-Length: 2\r\n", 400},
                    Refused{"Content-Length: -1\r\n", 400}, Refused{"Content-Length: 1x\r\n", 400},
                    Refused{"Content-Length: 99999999999999999999\r\n", 400},
                    Refused{"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400},
                    Refused{"Transfer-Encoding: gzip\r\n", 400},
                    Refused{"Content-Encoding: br\r\n", 400}, Refused{"no colon\r\n", 400},
                    Refused{"two words: 1\r\n", 400}, Refused{"A: \x01\r\n", 400},
                    Refused{"A: 1\nB: 2\r\n", 400}, Refused{": empty\r\n", 400},
                    Refused{"A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n", 431},
                    Refused{"A: 0123456789012345678901234567890123456789\r\n", 431}));

}  // namespace
}  // namespace pudica::daemon
