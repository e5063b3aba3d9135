// A host of sessions that does what it is told: life_host <store>. Reads requests from the standard
// input, a line each, and answers each with a line, until the input ends or it is killed.
#include "tests/session/life_host.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/session/live_session.h"

namespace {

using namespace cairn;
namespace json = boost::json;

json::object failed(const Status& status) { return {{"error", status.to_string()}}; }
json::object outcome(const Status& status) { return status.ok() ? json::object() : failed(status); }

std::string text(const json::object& request, const char* name) {
  return std::string(request.at(name).as_string());
}

// It drafts: what it says is compared with what sessions say that do not.
const Model& life_model() {
  static const Model model =
      *Model::open(test::live_runtime(), test::kTinyA, {.prefill_chunk = 32, .drafts = 2});
  return model;
}

class Host {
 public:
  explicit Host(std::string path) : path_(std::move(path)) {}

  Status open() {
    StoreOptions options = test::run_options();
    options.quota_bytes = test::kLifeQuotaBytes;
    Result<Store> store = Store::open(test::live_runtime(), path_, options);
    if (!store.ok()) return store.status();
    store_.emplace(std::move(*store));
    return {};
  }

  json::object answer(const json::object& request) {
    using Method = json::object (Host::*)(const json::object&);
    static const std::map<std::string, Method> methods = {
        {"append", &Host::append}, {"turns", &Host::turns},     {"mark", &Host::mark},
        {"rewind", &Host::rewind}, {"fork", &Host::fork},       {"sync", &Host::sync},
        {"show", &Host::show},     {"collect", &Host::collect}, {"reopen", &Host::reopen},
        {"remove", &Host::remove}, {"measure", &Host::measure}};
    return (this->*methods.at(text(request, "do")))(request);
  }

 private:
  // The request's session, which its first use makes.
  Result<Session*> session(const json::object& request) {
    const std::string name = text(request, "session");
    if (const auto open = sessions_.find(name); open != sessions_.end()) return &open->second;
    Result<Session> session = Session::open(life_model(), *store_, name);
    if (session.status().code() == StatusCode::kNotFound && request.contains("create")) {
      session = Session::create(life_model(), *store_, name);
    }
    if (!session.ok()) return session.status();
    return &sessions_.emplace(name, std::move(*session)).first->second;
  }
  json::object with(const json::object& request,
                    const std::function<json::object(Session&)>& part) {
    Result<Session*> session = this->session(request);
    return session.ok() ? part(**session) : failed(session.status());
  }

  json::object append(const json::object& request) {
    return with(request, [&](Session& session) {
      return outcome(session.append(test::from_wire(request.at("message").as_object())));
    });
  }

  // All of them run at once; some are cancelled after some of their steps.
  json::object turns(const json::object& request) {
    std::vector<Result<Turn>> turns;
    for (const json::value& each : request.at("turns").as_array()) {
      Result<Session*> session = this->session(each.as_object());
      turns.push_back(session.ok() ? start(**session, each.as_object())
                                   : Result<Turn>(session.status()));
    }
    json::array said;
    for (Result<Turn>& turn : turns) {
      if (!turn.ok()) return failed(turn.status());
      const test::Reply reply = test::read_turn(*turn);
      if (!reply.status.ok()) return failed(reply.status);
      said.push_back({{"end", static_cast<int>(reply.end_reason)},
                      {"exact", reply.reuse.exact},
                      {"prefilled", reply.reuse.prefilled}});
    }
    return {{"turns", said}};
  }
  static Result<Turn> start(Session& session, const json::object& turn) {
    const TurnOptions options = {
        .sampling = test::sampled(turn.at("seed").to_number<std::uint64_t>()),
        .max_tokens = turn.at("max_tokens").to_number<int>()};
    const auto run = [&] {
      return session.info().turn_open ? session.resume_turn() : session.start_turn(options);
    };
    const int n_steps = turn.at("cancel_after").to_number<int>();
    return n_steps < 0 ? run() : test::start_and_cancel(life_model(), n_steps, run);
  }

  json::object mark(const json::object& request) {
    return with(request, [&](Session& session) {
      const auto mark = session.mark("", request.at("state").as_bool());
      return mark.ok() ? json::object{{"event", *mark}} : failed(mark.status());
    });
  }
  json::object rewind(const json::object& request) {
    return with(request, [&](Session& session) {
      return outcome(session.rewind(request.at("event").to_number<std::uint64_t>()));
    });
  }
  json::object fork(const json::object& request) {
    return with(request, [&](Session& session) {
      return outcome(
          session.fork(text(request, "name"), request.at("event").to_number<std::uint64_t>())
              .status());
    });
  }
  json::object sync(const json::object& request) {
    return with(request, [&](Session& session) {
      const auto messages = parse_request(json::serialize(request.at("messages")));
      if (!messages.ok()) return failed(messages.status());
      return outcome(session.sync(*messages).status());
    });
  }
  json::object show(const json::object& request) {
    return with(request, [&](Session& session) {
      const auto messages = session.messages();
      if (!messages.ok()) return failed(messages.status());
      json::array shown;
      for (const Message& message : *messages) shown.push_back(test::to_wire(message));
      return json::object{{"messages", shown}, {"open", session.info().turn_open}};
    });
  }

  json::object collect(const json::object& request) {
    CollectOptions options;
    options.target_bytes = request.at("all").as_bool() ? 1 : 0;
    options.branches = request.at("branches").as_bool();
    return outcome(store_->collect(options).status());
  }
  json::object reopen(const json::object&) {
    sessions_.clear();
    store_.reset();
    return outcome(open());
  }
  json::object remove(const json::object& request) {
    sessions_.erase(text(request, "session"));
    return outcome(store_->remove(text(request, "session")));
  }
  json::object measure(const json::object&) {
    namespace fs = std::filesystem;
    const auto n_open = std::distance(fs::directory_iterator("/proc/self/fd"), {});
    return {{"bytes", store_->stats()->bytes_on_disk}, {"descriptors", n_open}};
  }

  std::string path_;
  std::optional<Store> store_;
  std::map<std::string, Session> sessions_;
};

int run(const std::string& path) {
  Host host(path);
  if (const Status opened = host.open(); !opened.ok()) {
    std::cout << json::serialize(failed(opened)) << std::endl;
    return 1;
  }
  std::cout << "{}" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << json::serialize(host.answer(json::parse(line).as_object())) << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? run(argv[1]) : 1; }
