// Goal: a request ends in time and in bounds whatever the other end does, and no signal comes of
// it. Method: a server of raw sockets that misbehaves in one way at a time.
#include "inspect/http_client.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inspect/reporter.h"

namespace pudica {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Steady = std::chrono::steady_clock;

// Accepts one connection after the other and lets `behave` have it; closed afterwards.
class RawServer {
 public:
  using Behaviour = std::function<void(int connection)>;

  explicit RawServer(Behaviour behave) : behave_(std::move(behave)) {
    char pattern[] = "/tmp/pudica-http-XXXXXX";
    folder_ = mkdtemp(pattern);
    path_ = folder_ + "/s";
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~RawServer() {
    closing_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int connections() const { return connections_; }

 private:
  void serve() {
    while (!closing_) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) continue;
      ++connections_;
      behave_(connection);
      ::close(connection);
    }
  }

  Behaviour behave_;
  std::string folder_;
  std::string path_;
  int listener_ = -1;
  std::atomic<int> connections_{0};
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

bool send_text(int connection, const std::string& text) {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count = ::send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

// Until the client has sent all of a request without a body, or gives up.
void read_request(int connection) {
  std::string seen;
  char block[4096];
  while (seen.find("\r\n\r\n") == std::string::npos) {
    const ssize_t count = ::recv(connection, block, sizeof(block), 0);
    if (count <= 0) return;
    seen.append(block, static_cast<std::size_t>(count));
  }
}

// Holds the connection until the client gives up.
void hold(int connection) {
  char block[4096];
  while (::recv(connection, block, sizeof(block), 0) > 0) {
  }
}

// Whether the client has, or does in the meantime.
bool gives_up(int connection, milliseconds meantime) {
  pollfd ended{connection, POLLRDHUP, 0};
  return ::poll(&ended, 1, static_cast<int>(meantime.count())) > 0;
}

void answer(int connection, const std::string& text) {
  read_request(connection);
  send_text(connection, text);
}

TEST(HttpClient, ReadsAnAnswer) {
  RawServer server([](int connection) {
    answer(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}");
  });
  HttpClient client(server.path());
  const auto reply = client.get("/v1/version", seconds(10));
  ASSERT_TRUE(reply.has_value()) << reply.error().message;
  EXPECT_EQ(reply->status, 404);
  EXPECT_EQ(reply->body, "{}");
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, SaysWhyNobodyAnswers) {
  HttpClient absent("/tmp/pudica-there-is-no-such-socket");
  EXPECT_THAT(absent.get("/", seconds(10)).error().message, HasSubstr("no such socket"));
  std::string path;
  {
    RawServer server([](int) {});
    path = server.path();
  }
  HttpClient gone(path);
  EXPECT_FALSE(gone.get("/", seconds(10)).has_value());
  HttpClient endless(std::string(200, 'x'));
  EXPECT_THAT(endless.get("/", seconds(10)).error().message, HasSubstr("200 characters"));
}

TEST(HttpClient, GivesUpOnAServerThatNeverAnswers) {
  RawServer server([](int connection) { hold(connection); });
  HttpClient client(server.path());
  const auto begin = Steady::now();
  const auto reply = client.get("/", milliseconds(100));
  ASSERT_FALSE(reply.has_value());
  EXPECT_THAT(reply.error().message, HasSubstr("more than 100 ms"));
  EXPECT_LT(Steady::now() - begin, seconds(10));
}

TEST(HttpClient, TheTimeIsThatOfTheWholeExchange) {
  for (const bool in_headers : {true, false}) {
    RawServer server([in_headers](int connection) {
      read_request(connection);
      send_text(connection, "HTTP/1.1 200 OK\r\n");
      if (!in_headers) send_text(connection, "Content-Length: 100000\r\n\r\n");
      do {  // a byte now and then
        if (!send_text(connection, in_headers ? "X-A: b\r\n" : "x")) return;
      } while (!gives_up(connection, milliseconds(5)));
    });
    HttpClient client(server.path());
    const auto begin = Steady::now();
    const auto reply = client.get("/", milliseconds(200));
    ASSERT_FALSE(reply.has_value());
    EXPECT_THAT(reply.error().message, HasSubstr("more than 200 ms"));
    EXPECT_LT(Steady::now() - begin, seconds(10));
  }
}

TEST(HttpClient, RubbishIsAnErrorNotAReply) {
  for (const char* text : {"", "\r\n\r\n", "hello\r\n", "HTTP/1.1 twohundred OK\r\n\r\n",
                           "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    RawServer server([text](int connection) { answer(connection, text); });
    HttpClient client(server.path());
    const auto reply = client.get("/", seconds(10));
    EXPECT_FALSE(reply.has_value()) << text;
  }
}

TEST(HttpClient, AnAnswerWithoutEndIsCutOff) {
  for (const bool in_headers : {true, false}) {
    RawServer server([in_headers](int connection) {
      read_request(connection);
      send_text(connection, "HTTP/1.1 200 OK\r\n");
      if (!in_headers) send_text(connection, "\r\n");  // a body until the end of time
      std::string block;
      while (block.size() < (1U << 20U)) block += in_headers ? "X-Header: and another\r\n" : "xx";
      while (send_text(connection, block)) {
      }
    });
    HttpClient client(server.path());
    const auto reply = client.get("/", seconds(60));
    ASSERT_FALSE(reply.has_value());
    EXPECT_THAT(reply.error().message, HasSubstr("longer than"));
  }
}

TEST(HttpClient, AServerThatGoesAwayWhileWeWriteRaisesNoSignal) {
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL) << "the test means nothing otherwise";
  const std::string body(8U << 20U, 'x');
  for (int i = 0; i < 5; ++i) {
    RawServer server([](int connection) {
      char block[100];
      static_cast<void>(::recv(connection, block, sizeof(block), 0));
    });
    HttpClient client(server.path());
    EXPECT_FALSE(client.post("/", body, seconds(10)).has_value());
  }
}

TEST(HttpClient, StopEndsTheRequestUnderWayAndLaterOnes) {
  std::atomic<bool> accepted{false};
  RawServer server([&accepted](int connection) {
    accepted = true;
    hold(connection);
  });
  HttpClient client(server.path());
  const auto begin = Steady::now();
  std::thread other([&] {
    while (!accepted) std::this_thread::yield();
    client.stop();
  });
  const auto reply = client.get("/", seconds(60));
  other.join();
  ASSERT_FALSE(reply.has_value());
  EXPECT_THAT(reply.error().message, HasSubstr("stopped"));
  EXPECT_FALSE(client.get("/", seconds(60)).has_value());
  EXPECT_LT(Steady::now() - begin, seconds(20));
}

// The same misbehaviour, seen from a run: nothing waits, nothing breaks, it goes away in time.
TEST(HttpClient, AReporterOutlivesEveryServer) {
  const std::vector<RawServer::Behaviour> behaviours{
      [](int connection) { hold(connection); }, [](int) {},
      [](int connection) { answer(connection, "rubbish\r\n\r\n"); },
      [](int connection) {
        answer(connection, "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nnull");
      },
      [](int connection) { answer(connection, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"); }};
  for (const auto& behaviour : behaviours) {
    RawServer server(behaviour);
    ReporterOptions options;
    options.socket_path = server.path();
    const auto begin = Steady::now();
    {
      auto reporter = Reporter::start(std::move(options));
      EXPECT_FALSE(reporter->wait_registered(milliseconds(100)));
      for (int i = 0; i < 2000; ++i) reporter->step(StepEvent{});
      EXPECT_FALSE(reporter->finish("ok", milliseconds(100)));
      EXPECT_FALSE(reporter->status().registered);
    }
    EXPECT_LT(Steady::now() - begin, seconds(20));
  }
}

}  // namespace
}  // namespace pudica
