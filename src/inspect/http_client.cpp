#include "inspect/http_client.h"

#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <exception>
#include <httplib.h>
#include <mutex>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "inspect/http_bounded_client.h"

namespace pudica {
namespace {

// Why a connection to the socket fails; empty where it does not.
std::string connection_fault(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return "the path has " + std::to_string(path.size()) + " characters, expected at most " +
           std::to_string(sizeof(address.sun_path) - 1);
  }
  path.copy(address.sun_path, path.size());
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return std::strerror(errno);
  const bool connected =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int code = errno;
  ::close(probe);
  if (connected) return {};
  switch (code) {
    case ENOENT:
      return "there is no such socket: pudicad is not running here";
    case ECONNREFUSED: {
      struct stat status {};
      const bool socket = ::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
      return socket ? "nobody listens: pudicad has stopped" : "this is no socket";
    }
    case EACCES:
    case EPERM:
      return "permission denied: the socket belongs to another user";
    default:
      return std::strerror(code);
  }
}

}  // namespace

struct HttpClient::Impl {
  std::mutex mutex;
  http::BoundedClient* under_way = nullptr;  // guarded by mutex
  std::atomic<bool> stopped{false};
};

HttpClient::HttpClient(std::string socket_path, SocketTrust trust)
    : socket_path_(std::move(socket_path)),
      trust_(std::move(trust)),
      impl_(std::make_unique<Impl>()) {}

HttpClient::~HttpClient() = default;

Result<HttpReply> HttpClient::send(const Request& request) {
  const auto unavailable = [this](const std::string& why) {
    return Error{ErrorCode::kUnavailable, "no answer from pudicad at " + socket_path_ + ": " + why};
  };
  // stop() reaches the client for as long as this lives.
  struct UnderWay {
    Impl& impl;
    UnderWay(Impl& owner, http::BoundedClient& client) : impl(owner) { set(&client); }
    ~UnderWay() { set(nullptr); }
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;
    void set(http::BoundedClient* client) {
      const std::lock_guard lock(impl.mutex);
      impl.under_way = client;
    }
  };
  try {
    distrust_ = trust_.path_fault(socket_path_);
    if (!distrust_.empty()) return unavailable("it is not asked: " + distrust_);
    http::BoundedClient client(socket_path_, trust_, impl_->stopped, request.timeout);
    const UnderWay under_way(*impl_, client);
    if (impl_->stopped) return unavailable("the client was stopped");
    httplib::Result answer = [&] {
      switch (request.method) {
        case Method::kPut:
          return client.Put(request.target, request.body, "application/json");
        case Method::kPost:
          return client.Post(request.target, request.body, "application/json");
        case Method::kDelete:
          return client.Delete(request.target);
        case Method::kGet:
          break;
      }
      return client.Get(request.target);
    }();
    if (answer) return HttpReply{answer->status, std::move(answer->body)};
    if (impl_->stopped) return unavailable("the client was stopped");
    distrust_ = client.distrust();
    if (!distrust_.empty()) return unavailable("it is not asked: " + distrust_);
    std::string why = client.fault();
    if (why.empty() && answer.error() == httplib::Error::Connection) {
      why = connection_fault(socket_path_);
    }
    return unavailable(why.empty() ? httplib::to_string(answer.error()) : why);
  } catch (const std::exception& error) {
    return unavailable(error.what());
  }
}

Result<HttpReply> HttpClient::get(const std::string& target, std::chrono::milliseconds timeout) {
  return send({Method::kGet, target, {}, timeout});
}

Result<HttpReply> HttpClient::remove(const std::string& target, std::chrono::milliseconds timeout) {
  return send({Method::kDelete, target, {}, timeout});
}

Result<HttpReply> HttpClient::put(const std::string& target, const std::string& json_body,
                                  std::chrono::milliseconds timeout) {
  return send({Method::kPut, target, json_body, timeout});
}

Result<HttpReply> HttpClient::post(const std::string& target, const std::string& json_body,
                                   std::chrono::milliseconds timeout) {
  return send({Method::kPost, target, json_body, timeout});
}

void HttpClient::stop() {
  impl_->stopped = true;
  const std::lock_guard lock(impl_->mutex);
  if (impl_->under_way != nullptr) impl_->under_way->stop();
}

std::string url_escape(const std::string& text) {
  constexpr std::string_view kPlain = "-._~";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (std::isalnum(byte) != 0 || kPlain.find(character) != std::string_view::npos) {
      out += character;
    } else {
      out += '%';
      out += kDigits[byte >> 4U];
      out += kDigits[byte & 15U];
    }
  }
  return out;
}

std::string error_message(const HttpReply& reply) {
  constexpr std::size_t kShown = 200;
  const auto body = nlohmann::json::parse(reply.body, nullptr, false);
  if (body.is_object() && body.contains("error") && body["error"].is_object() &&
      body["error"].contains("message") && body["error"]["message"].is_string()) {
    return body["error"]["message"].get<std::string>();
  }
  return "status " + std::to_string(reply.status) + ": " + reply.body.substr(0, kShown);
}

}  // namespace pudica
