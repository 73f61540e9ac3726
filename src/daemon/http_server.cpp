#include "daemon/http_server.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <httplib.h>
#include <map>
#include <mutex>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/log.h"
#include "base/safe_text.h"
#include "daemon/connection_pool.h"
#include "daemon/connection_user.h"
#include "daemon/http_stream.h"
#include "daemon/peer_watch.h"

namespace pudica::daemon {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 5> kHeaders{
    {{"Content-Security-Policy",
      "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
     {"X-Content-Type-Options", "nosniff"},
     {"X-Frame-Options", "DENY"},
     {"Referrer-Policy", "no-referrer"},
     {"Cross-Origin-Resource-Policy", "same-origin"}}};

// The library as parser of heads and bodies and writer of answers, on streams of ours.
class Exchange : public httplib::Server {
 public:
  Exchange(Transport transport, const HttpServer::Handler& handler)
      : transport_(transport), handler_(handler) {
    httplib::Headers headers{{"Cache-Control", "no-store"}};
    for (const auto& [name, value] : kHeaders) headers.emplace(name, value);
    set_default_headers(std::move(headers));
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      respond(request, response);
    };
    // Every path is "/" by then: see serve().
    Get("/", answer);
    Post("/", answer);
    Put("/", answer);
    Patch("/", answer);
    Delete("/", answer);
    Options("/", answer);
    set_pre_routing_handler([answer](const httplib::Request& request, httplib::Response& response) {
      if (request.method != "CONNECT" && request.method != "TRACE" && request.method != "PRI") {
        return HandlerResponse::Unhandled;
      }
      answer(request, response);
      return HandlerResponse::Handled;
    });
    set_error_handler(HandlerWithResponse([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return HandlerResponse::Unhandled;
      const int status = response.status == 414 ? 431 : response.status < 500 ? 400 : 500;
      response.status = status;
      response.set_content(
          error_reply(status, status == 400 ? "not an HTTP request that is understood"
                                            : "the request could not be served")
              .body,
          "application/json");
      return HandlerResponse::Handled;
    }));
  }

  void serve(HttpStream& stream, int connection, std::stop_token gone) {
    bool closed = false;
    gone_ = std::move(gone);
    // The library matches paths by regular expressions, whose recursion grows with the path; our
    // routes are looked up in respond(), by the target.
    process_request(stream, true, closed, [connection](httplib::Request& request) {
      request.remote_port = connection;  // all that respond() learns of the connection
      request.path = "/";
      request.params.clear();
      request.ranges.clear();
    });
  }

 private:
  void respond(const httplib::Request& request, httplib::Response& response) {
    ApiRequest asked;
    asked.method = request.method == "HEAD" ? "GET" : request.method;
    const std::string_view target = request.target;
    const std::size_t mark = std::min(target.find('?'), target.size());
    asked.path = target.substr(0, mark);
    asked.query = parse_query(target.substr(std::min(mark + 1, target.size())));
    asked.body = request.body;
    asked.caller = {transport_, connection_user(request.remote_port),
                    request.get_header_value("Authorization")};
    asked.gone = gone_;
    ApiReply reply;
    try {
      reply = handler_(asked);
    } catch (const std::exception& error) {
      log_warn("request failed: path=" + log_value(asked.path) +
               " error=" + log_value(error.what()));
      reply = error_reply(500, "the daemon failed on this request: its log says more");
    }
    response.status = reply.status;
    for (const auto& [name, value] : reply.headers) {
      response.headers.erase(name);
      response.set_header(name, value);
    }
    response.set_content(std::move(reply.body), reply.content_type);
  }

  // The library hands nothing of ours from serve() to respond(), and they share a thread.
  static thread_local std::stop_token gone_;

  Transport transport_;
  const HttpServer::Handler& handler_;
};

thread_local std::stop_token Exchange::gone_;

// "HTTP/1.1 413 ...": the status of an answer as it was written.
int status_of(std::string_view answer) {
  constexpr std::size_t kPosition = 9;
  if (answer.size() < kPosition + 3) return 0;
  int status = 0;
  for (const char digit : answer.substr(kPosition, 3)) status = 10 * status + (digit - '0');
  return status;
}

bool is_address(const std::string& host) {
  std::string bare = host;
  if (bare.starts_with('[') && bare.ends_with(']')) bare = bare.substr(1, bare.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(bare.c_str(), nullptr, &hints, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

std::string plain_answer(int status, const std::string& message) {
  const ApiReply reply = error_reply(status, message);
  std::string text = "HTTP/1.1 " + std::to_string(status) + " " + std::string(error_code(status));
  text += "\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ";
  text += std::to_string(reply.body.size()) + "\r\n\r\n" + reply.body;
  return text;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

StreamLimits stream_limits(const HttpServerOptions& options) {
  StreamLimits limits;
  limits.body_bytes = options.body_bytes;
  limits.head_time = milliseconds_of(options.head_seconds);
  limits.stall_time = milliseconds_of(options.stall_seconds);
  limits.request_time = milliseconds_of(options.request_seconds);
  return limits;
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpServerOptions& given, Handler asked, Observer observed)
      : options(given), handler(std::move(asked)), observer(std::move(observed)) {}

  [[nodiscard]] HttpServerOptions current() const {
    const std::lock_guard lock(mutex);
    return options;
  }

  // A socket with places of its own: who fills one listener leaves the others alone.
  struct Listener {
    ListenSocket socket;
    std::unique_ptr<ConnectionPool> pool;
  };

  void listen_on(const ListenSocket& socket);
  void serve(ConnectionPool& pool, int fd, Transport transport);
  void accept_from(Listener& listener);
  void accept_loop();
  void turn_away(int fd, const std::string& why) const;
  [[nodiscard]] bool host_allowed(const std::string& host) const;

  mutable std::mutex mutex;
  HttpServerOptions options;  // guarded by mutex
  Handler handler;
  Observer observer;
  Exchange on_unix{Transport::kUnix, handler};
  Exchange on_tcp{Transport::kTcp, handler};
  PeerWatch peers;
  std::vector<Listener> listeners;
  int wake = -1;  // an eventfd: stop() writes it
  std::atomic<bool> stopping{false};
  std::thread acceptor;
};

void HttpServer::Impl::listen_on(const ListenSocket& socket) {
  const auto serve_one = [this, transport = socket.transport](ConnectionPool& pool, int fd) {
    serve(pool, fd, transport);
  };
  const auto dismiss = [this](int fd) {
    turn_away(fd, "no request came, and another connection needs the place");
  };
  listeners.push_back(
      {socket, std::make_unique<ConnectionPool>(current().connections, serve_one, dismiss)});
}

// A page elsewhere can make a browser ask a name that it made point here; it cannot choose what
// the browser says it asked for.
bool HttpServer::Impl::host_allowed(const std::string& host) const {
  if (host == "localhost" || host == "127.0.0.1" || host == "[::1]") return true;
  if (!current().any_address_as_host) return false;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0 && host == name.data()) return true;
  return is_address(host);
}

void HttpServer::Impl::serve(ConnectionPool& pool, int fd, Transport transport) {
  const StreamLimits limits = stream_limits(current());
  HttpStream stream(fd, limits);
  bool readable = stream.read_head();
  if (!readable && stream.fault().status == 0) return;
  if (!pool.begin(fd)) return;
  HttpStream::Fault fault = stream.fault();
  if (readable && transport == Transport::kTcp && !host_allowed(stream.head().host)) {
    readable = false;
    fault = {403, "Host: '" + stream.head().host.substr(0, 60) +
                      "', expected localhost or a loopback address"};
  }
  if (readable) {
    const PeerWatch::Watched watched(peers, fd);
    (transport == Transport::kUnix ? on_unix : on_tcp).serve(stream, fd, watched.gone());
    fault = stream.fault();
  }
  if (fault.status != 0) stream.answer_instead(plain_answer(fault.status, fault.message));
  observer(status_of(stream.output()));
  stream.flush();
}

void HttpServer::Impl::accept_from(Listener& listener) {
  const int fd = ::accept4(listener.socket.fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) {
    // Out of descriptors the connection stays in the queue: without a pause this would spin.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      log_warn(std::string("connection not accepted: ") + std::strerror(errno));
      pollfd waiting{wake, POLLIN, 0};
      ::poll(&waiting, 1, 50);
    }
    return;
  }
  if (listener.pool->submit(fd)) return;
  turn_away(fd, "as many requests are under way on " + listener.socket.name +
                    " as allowed: " + std::to_string(current().connections));
  ::close(fd);
}

void HttpServer::Impl::turn_away(int fd, const std::string& why) const {
  const std::string answer = plain_answer(503, why);
  observer(503);
  [[maybe_unused]] const ssize_t sent =
      ::send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void HttpServer::Impl::accept_loop() {
  std::vector<pollfd> waiting{{wake, POLLIN, 0}};
  for (const Listener& one : listeners) waiting.push_back({one.socket.fd, POLLIN, 0});
  while (!stopping) {
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) {
      log_warn(std::string("waiting for connections failed: ") + std::strerror(errno));
      return;
    }
    for (std::size_t i = 0; i < listeners.size() && !stopping; ++i) {
      if ((waiting[i + 1].revents & POLLIN) != 0) accept_from(listeners[i]);
    }
  }
}

HttpServer::HttpServer(const HttpServerOptions& options, Handler handler, Observer observer)
    : impl_(std::make_unique<Impl>(options, std::move(handler), std::move(observer))) {}

HttpServer::~HttpServer() {
  stop();
  if (impl_->wake >= 0) ::close(impl_->wake);
}

Result<void> HttpServer::start(const std::vector<ListenSocket>& sockets) {
  if (auto watching = impl_->peers.start(); !watching) return watching;
  for (const ListenSocket& socket : sockets) impl_->listen_on(socket);
  impl_->wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (impl_->wake < 0) {
    return Error{ErrorCode::kUnavailable, std::string("eventfd: ") + std::strerror(errno)};
  }
  impl_->acceptor = std::thread([impl = impl_.get()] { impl->accept_loop(); });
  return {};
}

void HttpServer::set_limits(const HttpServerOptions& options) {
  {
    const std::lock_guard lock(impl_->mutex);
    const bool any_host = impl_->options.any_address_as_host;
    impl_->options = options;
    impl_->options.any_address_as_host = any_host;
  }
  for (const Impl::Listener& one : impl_->listeners) one.pool->set_most(options.connections);
}

void HttpServer::stop() {
  if (impl_->acceptor.joinable()) {
    impl_->stopping = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(impl_->wake, &one, sizeof(one));
    impl_->acceptor.join();
  }
  for (const Impl::Listener& one : impl_->listeners) one.pool->stop();
  impl_->peers.stop();
}

std::size_t HttpServer::open_connections() const {
  std::size_t open = 0;
  for (const Impl::Listener& one : impl_->listeners) open += one.pool->open();
  return open;
}

}  // namespace pudica::daemon
