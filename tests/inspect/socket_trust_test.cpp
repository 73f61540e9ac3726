// Who is trusted at a socket, by owners and rights that this test sets. What needs other users'
// files is tested as root only; tests/daemon/two_users_test.py has whole programs.
#include "inspect/socket_trust.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inspect/user_names.h"

namespace pudica {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr unsigned kStranger = 20009;

struct SocketTrustTest : testing::Test {
  SocketTrustTest() {
    char pattern[] = "/tmp/pudica-trust-XXXXXX";
    folder = mkdtemp(pattern);
    path = folder + "/s";
    std::ofstream(path) << "";
  }
  ~SocketTrustTest() override { std::filesystem::remove_all(folder); }

  std::string folder;
  std::string path;
};

TEST_F(SocketTrustTest, TrustsItsUserAndRootAndNobodyElse) {
  const SocketTrust trust;
  EXPECT_TRUE(trust.trusts(geteuid()));
  EXPECT_TRUE(trust.trusts(0));
  EXPECT_FALSE(trust.trusts(kStranger));
  EXPECT_TRUE(SocketTrust(std::to_string(kStranger)).trusts(kStranger));
  EXPECT_THAT(trust.path_fault(path), IsEmpty());
}

TEST_F(SocketTrustTest, WhatIsNotThereHasNoFault) {
  EXPECT_THAT(SocketTrust().path_fault(folder + "/none/of/it"), IsEmpty());
}

TEST_F(SocketTrustTest, ADirectoryThatAllMayWriteIsRefusedUnlessSticky) {
  const SocketTrust trust;
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  EXPECT_THAT(trust.path_fault(path), HasSubstr("written by every user"));
  ASSERT_EQ(::chmod(folder.c_str(), 01777), 0);
  EXPECT_THAT(trust.path_fault(path), IsEmpty());
  ASSERT_EQ(::chmod(folder.c_str(), 0770), 0);
  EXPECT_THAT(trust.path_fault(path), IsEmpty());
}

TEST_F(SocketTrustTest, OwnersAreNamedWithWhoWasExpected) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: gives files away";
  const SocketTrust trust;
  ASSERT_EQ(::chown(path.c_str(), kStranger, kStranger), 0);
  EXPECT_THAT(trust.path_fault(path),
              HasSubstr("socket " + path + " belongs to user 20009, expected root"));
  EXPECT_THAT(SocketTrust("20009").path_fault(path), IsEmpty());
  ASSERT_EQ(::chown(folder.c_str(), kStranger, kStranger), 0);
  EXPECT_THAT(trust.path_fault(path), HasSubstr("directory " + folder + " belongs to user 20009"));
  EXPECT_THAT(SocketTrust("20009").path_fault(path), IsEmpty());
}

TEST_F(SocketTrustTest, ALinkOfAnotherUserIsNotFollowed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: gives files away";
  const std::string link = folder + "/link";
  ASSERT_EQ(::symlink(folder.c_str(), link.c_str()), 0);
  EXPECT_THAT(SocketTrust().path_fault(link + "/s"), IsEmpty());
  ASSERT_EQ(::lchown(link.c_str(), kStranger, kStranger), 0);
  EXPECT_THAT(SocketTrust().path_fault(link + "/s"), HasSubstr(link + " belongs to user 20009"));
}

TEST_F(SocketTrustTest, AUserThatIsNoneIsSaid) {
  EXPECT_THAT(SocketTrust("no such user").path_fault(path),
              HasSubstr("PUDICA_DAEMON_USER: 'no such user', expected a user"));
}

TEST(PeerCredentials, AreThoseOfTheOtherEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const auto peer = peer_credentials(ends[0]);
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->process, getpid());
  EXPECT_EQ(peer->user_id, geteuid());
  EXPECT_THAT(SocketTrust().peer_fault(ends[0]), IsEmpty());
  for (const int end : ends) ::close(end);
  EXPECT_EQ(peer_credentials(-1), std::nullopt);
}

TEST(UserNames, AreFoundByNameAndNumber) {
  EXPECT_EQ(user_of_name("root"), 0U);
  EXPECT_EQ(user_of_name("20009"), kStranger);
  EXPECT_EQ(user_of_name("no such user"), std::nullopt);
  EXPECT_EQ(user_name(0), "root");
  EXPECT_EQ(user_name(kStranger), "20009");
  EXPECT_EQ(group_name(kStranger), "20009");
}

}  // namespace
}  // namespace pudica
