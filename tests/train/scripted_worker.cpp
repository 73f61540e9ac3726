// A worker for the tests: speaks the protocol without a model. Its behaviour is the first argument,
// or the policy that `setup` names: see act().
#include <cstdio>
#include <cstdlib>
#include <signal.h>
#include <string>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "train/protocol.h"
#include "train/results.h"

namespace {

using nlohmann::json;
using pudica::Bytes;
using pudica::train::kCommandDescriptor;
using pudica::train::kReplyDescriptor;

void write_reply(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const auto count = write(kReplyDescriptor, text.data() + done, text.size() - done);
    if (count <= 0) _exit(9);
    done += static_cast<std::size_t>(count);
  }
}

// Ways to go wrong; returns for names it does not know.
void act(const std::string& behaviour) {
  if (behaviour == "crash") raise(SIGSEGV);
  if (behaviour == "exit") _exit(7);
  if (behaviour == "kill") raise(SIGKILL);
  if (behaviour == "rubbish") write_reply("this is no JSON\n");
  if (behaviour == "close") {
    close(kCommandDescriptor);
    close(kReplyDescriptor);
    for (;;) pause();
  }
  if (behaviour == "half") {
    write_reply("{\"half\":");
    _exit(0);
  }
  if (behaviour == "long") write_reply("\"" + std::string(4'000'000, 'x') + "\"\n");
  if (behaviour == "endless") {
    const std::string chunk(1 << 20, 'x');
    for (;;) write_reply(chunk);
  }
  if (behaviour == "silent") {
    for (;;) pause();
  }
}

json step(const std::string& policy, std::int64_t index) {
  if (policy == "oom" && index == 3) return {{"error", "out of memory: 12 bytes"}, {"oom", true}};
  if (policy == "dies" && index == 2) raise(SIGKILL);
  if (policy == "interrupts" && index == 2) kill(getppid(), SIGINT);
  pudica::train::StepRow row;
  row.step = index;
  row.shape = "4x" + std::to_string(100 + index);
  row.seconds = policy == "full" ? 0.4 : 0.3;
  row.cpu_seconds = row.seconds;
  row.loss = 5.0 - 0.1 * static_cast<double>(index);
  row.peak = Bytes(policy == "none" ? 3000 : 1900);
  row.budget = Bytes(policy == "none" ? 0 : 2000);
  row.layer_calls = 8;
  return to_json(row);
}

int serve() {
  pudica::train::Channel channel;
  std::string policy;
  for (;;) {
    const auto command = channel.receive();
    if (!command) return 0;
    const auto name = command->value("cmd", "");
    json reply = {{"ok", true}};
    if (name == "calibrate") {
      reply = {{"floor_bytes", 1000},
               {"keep_all_bytes", 3000},
               {"menu_floor_bytes", 900},
               {"versions", {{"torch", "test"}}}};
    } else if (name == "setup") {
      policy = command->value("policy", "");
      if (policy == "unknown") reply = {{"error", "--policy: 'unknown' seen"}, {"usage", true}};
    } else if (name == "step") {
      reply = step(policy, command->value("i", 0));
    } else if (name == "finish") {
      reply = {{"params_sha256", std::string(64, 'a')},
               {"cache", nullptr},
               {"plans", json::array({{{"shape", "4x100"}, {"modes", {"keep", "full"}}}})}};
    } else if (name == "environment") {
      const char* value = std::getenv(command->value("name", "").c_str());
      reply = {{"value", value == nullptr ? "" : value}};
    } else if (name == "print") {
      std::puts("a library's chatter");
      std::fflush(stdout);
    } else {
      act(name);
      if (name == "rubbish" || name == "long") continue;
    }
    if (!channel.send(reply)) return 0;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) act(argv[1]);
  return serve();
}
