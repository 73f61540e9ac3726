#include "daemon/listener.h"

#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/daemon_parts.h"

namespace pudica::daemon {
namespace {

using testing::HasSubstr;

mode_t mode_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return status.st_mode & 0777U;
}

TEST(Listeners, SocketAndItsDirectoryAreTheUsersAlone) {
  const ScratchFolder folder;
  const std::string path = folder.file("made/here/p.sock");
  {
    Listeners listeners;
    ASSERT_TRUE(listeners.add_unix(path, ""));
    EXPECT_EQ(mode_of(path), 0600U);
    EXPECT_EQ(mode_of(folder.file("made/here")), 0700U);
    EXPECT_TRUE(listeners.has(Transport::kUnix));
    EXPECT_FALSE(listeners.has(Transport::kTcp));
  }
  EXPECT_EQ(mode_of(path), 0U);  // gone with its owner
}

TEST(Listeners, OwnDirectoryIsClosedToOthersEvenIfItWasThere) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkdir(folder.file("pudica").c_str(), 0777), 0);
  ASSERT_EQ(::chmod(folder.file("pudica").c_str(), 0777), 0);
  ASSERT_EQ(::mkdir(folder.file("other").c_str(), 0755), 0);
  Listeners listeners;
  ASSERT_TRUE(listeners.add_unix(folder.file("pudica/p.sock"), ""));
  ASSERT_TRUE(listeners.add_unix(folder.file("other/p.sock"), ""));
  EXPECT_EQ(mode_of(folder.file("pudica")), 0700U);
  EXPECT_EQ(mode_of(folder.file("other")), 0755U);
}

TEST(Listeners, SecondDaemonIsRefusedAndNamesTheFirst) {
  const ScratchFolder folder;
  Listeners first;
  ASSERT_TRUE(first.add_unix(folder.file("p.sock"), ""));
  Listeners second;
  const auto refused = second.add_unix(folder.file("p.sock"), "");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("already"));
  EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(::getpid())));
  EXPECT_EQ(mode_of(folder.file("p.sock")), 0600U);  // the first one's stays
}

TEST(Listeners, StaleSocketIsReplacedAndOtherFilesAreNot) {
  const ScratchFolder folder;
  const std::string path = folder.file("p.sock");
  const int stale = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(stale, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(stale);
  {
    Listeners listeners;
    EXPECT_TRUE(listeners.add_unix(path, ""));
  }
  std::ofstream(folder.file("file")) << "precious";
  Listeners listeners;
  const auto refused = listeners.add_unix(folder.file("file"), "");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("not a socket"));
  EXPECT_NE(mode_of(folder.file("file")), 0U);
}

TEST(Listeners, LongPathsAndUnknownGroupsAreNamed) {
  const ScratchFolder folder;
  Listeners listeners;
  const auto refused = listeners.add_unix(folder.file(std::string(120, 'x')), "");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("107"));
  const auto group = listeners.add_unix(folder.file("p.sock"), "no-such-group");
  ASSERT_FALSE(group);
  EXPECT_THAT(group.error().message, HasSubstr("no-such-group"));
}

TEST(Listeners, OnlyLoopbackUnlessToldTwice) {
  Listeners listeners;
  EXPECT_TRUE(listeners.add_tcp("127.0.0.1:0", Listeners::Remote::kRefused));
  EXPECT_TRUE(listeners.add_tcp("localhost:0", Listeners::Remote::kRefused));
  EXPECT_FALSE(listeners.add_tcp("0.0.0.0:0", Listeners::Remote::kRefused));
  EXPECT_FALSE(listeners.add_tcp("[::]:0", Listeners::Remote::kRefused));
  EXPECT_FALSE(listeners.add_tcp("192.0.2.1:0", Listeners::Remote::kRefused));
  EXPECT_TRUE(listeners.add_tcp("0.0.0.0:0", Listeners::Remote::kAllowed));
  EXPECT_THAT(listeners.sockets().front().name, testing::Not(testing::EndsWith(":0")));
}

TEST(Listeners, AddressesThatAreNoneAreRefused) {
  Listeners listeners;
  for (const char* address : {"", "9400", ":9400", "localhost", "127.0.0.1:", "127.0.0.1:x",
                              "127.0.0.1:65536", "127.0.0.1:-1", "::1:9400", "example.com:80"}) {
    const auto refused = listeners.add_tcp(address, Listeners::Remote::kAllowed);
    ASSERT_FALSE(refused) << address;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << address;
    EXPECT_THAT(refused.error().message, HasSubstr("expected")) << address;
  }
}

}  // namespace
}  // namespace pudica::daemon
