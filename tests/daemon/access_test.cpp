#include "daemon/access.h"

#include <array>
#include <fstream>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/connection_user.h"
#include "daemon/daemon_parts.h"

namespace pudica::daemon {
namespace {

using testing::HasSubstr;

constexpr unsigned kKeeper = 20004;
constexpr unsigned kAda = 20001;
constexpr unsigned kBob = 20002;
constexpr const char* kToken = "correct horse battery staple";

Caller over_unix(unsigned user) { return {Transport::kUnix, user, {}}; }
Caller over_tcp(std::optional<unsigned> user, std::string authorization = {}) {
  return {Transport::kTcp, user, std::move(authorization)};
}

TEST(Access, ARunIsSteeredByItsUserTheDaemonsAndRoot) {
  const Access access({kKeeper, {}, false});
  for (const unsigned user : {kAda, kKeeper, 0U}) {
    EXPECT_TRUE(access.may_steer(over_unix(user), kAda)) << user;
    EXPECT_TRUE(access.sees_command(over_unix(user), kAda)) << user;
  }
  EXPECT_FALSE(access.may_steer(over_unix(kBob), kAda));
  EXPECT_FALSE(access.sees_command(over_unix(kBob), kAda));
  EXPECT_FALSE(access.may_steer({}, std::nullopt)) << "nobody is not the owner of nobody's run";
  EXPECT_TRUE(access.may_steer(over_unix(kKeeper), std::nullopt));
  EXPECT_FALSE(access.is_operator(over_unix(kAda)));
  EXPECT_TRUE(access.may_read(over_unix(kBob))) << "the socket's rights let nobody else in";
}

TEST(Access, OverTcpOperatorsReadAndWhoHasTheToken) {
  const Access plain({kKeeper, {}, false});
  EXPECT_TRUE(plain.may_read(over_tcp(kKeeper)));
  EXPECT_TRUE(plain.may_read(over_tcp(0)));
  EXPECT_FALSE(plain.may_read(over_tcp(kAda)));
  EXPECT_FALSE(plain.may_read(over_tcp(std::nullopt)));
  EXPECT_FALSE(plain.may_read(over_tcp(kAda, "Bearer "))) << "no token is not an empty one";
  const Access with_token({kKeeper, kToken, true});
  EXPECT_TRUE(with_token.may_read(over_tcp(std::nullopt, std::string("Bearer ") + kToken)));
  // "any:" and the token.
  const std::string basic = "Basic YW55OmNvcnJlY3QgaG9yc2UgYmF0dGVyeSBzdGFwbGU=";
  EXPECT_TRUE(with_token.may_read(over_tcp(std::nullopt, basic)));
  EXPECT_TRUE(with_token.sees_command(over_tcp(std::nullopt, basic), kAda));
  EXPECT_FALSE(with_token.may_steer(over_tcp(std::nullopt, basic), kAda));
  for (const char* wrong : {"", "Bearer", "Bearer x", "Basic",
                            "Basic YW55Og==", "Basic ====", "correct horse battery staple"}) {
    EXPECT_FALSE(with_token.may_read(over_tcp(kAda, wrong))) << wrong;
  }
}

TEST(Access, EveryoneReadsWhereThatIsSaidButNoCommandLines) {
  const Access open({kKeeper, {}, true});
  EXPECT_TRUE(open.may_read(over_tcp(std::nullopt)));
  EXPECT_FALSE(open.sees_command(over_tcp(std::nullopt), kAda));
  EXPECT_TRUE(open.sees_command(over_tcp(kAda), kAda));
  EXPECT_EQ(open.readers(), "everyone");
}

TEST(Access, ATokenIsAFileOfItsOwnersAlone) {
  const ScratchFolder folder;
  const std::string path = folder.file("token");
  std::ofstream(path) << "  " << kToken << "\n";
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(read_token(path).error().message, HasSubstr("expected mode 0600"));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(read_token(path).value(), kToken);
  std::ofstream(path) << "short\n";
  EXPECT_THAT(read_token(path).error().message, HasSubstr("5 characters, expected at least 16"));
  EXPECT_THAT(read_token(folder.file("none")).error().message, HasSubstr("No such file"));
}

TEST(ConnectionUser, IsThatOfTheOtherEndOnThisMachine) {
  for (const int family : {AF_INET, AF_INET6}) {
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET6) {
      reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
    } else {
      reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    const int listening = ::socket(family, SOCK_STREAM, 0);
    if (listening < 0 || ::bind(listening, plain, size) != 0) {
      if (listening >= 0) ::close(listening);
      continue;  // no IPv6 here
    }
    ASSERT_EQ(::listen(listening, 1), 0);
    ASSERT_EQ(::getsockname(listening, plain, &size), 0);
    const int client = ::socket(family, SOCK_STREAM, 0);
    ASSERT_EQ(::connect(client, plain, size), 0);
    const int accepted = ::accept(listening, nullptr, nullptr);
    EXPECT_EQ(connection_user(accepted), ::geteuid());
    EXPECT_EQ(connection_user(listening), std::nullopt);
    ::close(client);  // of no process any more: the kernel would say root
    EXPECT_EQ(connection_user(accepted), std::nullopt);
    ::close(accepted);
    ::close(listening);
  }
  EXPECT_EQ(connection_user(-1), std::nullopt);
}

// Where the other end is no socket of this machine the kernel shows whoever listens on a port of
// its number instead, sshd of root say. Method: the client's socket goes without a word to the
// other end (tcp(7), TCP_REPAIR), and a listener takes its port.
TEST(ConnectionUser, AListenerIsNotTheOtherEnd) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listening, plain, size), 0);
  ASSERT_EQ(::listen(listening, 1), 0);
  ASSERT_EQ(::getsockname(listening, plain, &size), 0);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::connect(client, plain, size), 0);
  const int accepted = ::accept(listening, nullptr, nullptr);
  ASSERT_EQ(connection_user(accepted), ::geteuid());
  const int on = 1;
  const bool repaired = ::setsockopt(client, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) == 0;
  ASSERT_EQ(::getsockname(client, plain, &size), 0);
  ::close(client);
  const int other = ::socket(AF_INET, SOCK_STREAM, 0);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool taken = repaired && ::bind(other, plain, size) == 0 && ::listen(other, 1) == 0;
  if (taken) {
    EXPECT_EQ(connection_user(accepted), std::nullopt);
  }
  for (const int socket : {other, accepted, listening}) ::close(socket);
  if (!taken) GTEST_SKIP() << "needs the right to repair sockets (CAP_NET_ADMIN)";
}

}  // namespace
}  // namespace pudica::daemon
