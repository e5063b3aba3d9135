// The program life_host as its driver sees it: requests and answers, and its death in the middle of
// either.
#ifndef CAIRN_TESTS_SESSION_LIFE_PROCESS_H_
#define CAIRN_TESTS_SESSION_LIFE_PROCESS_H_

#include <sys/types.h>

#include <boost/json.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <string>

namespace cairn::test {

class LifeProcess {
 public:
  explicit LifeProcess(std::string store) : store_(std::move(store)) { start(); }
  LifeProcess(const LifeProcess&) = delete;
  LifeProcess& operator=(const LifeProcess&) = delete;
  ~LifeProcess();

  // What it answers; a failed expectation and an empty object where that is an error.
  boost::json::object ask(const boost::json::object& request);
  // The same, but it is killed at an instant of its work, as long as that took last time. Empty: it
  // was, and another one runs. The answer: it was faster.
  std::optional<boost::json::object> ask_and_kill(const boost::json::object& request,
                                                  std::mt19937& random);
  int n_kills() const { return n_kills_; }

 private:
  using Clock = std::chrono::steady_clock;

  void start();
  void stop();  // by SIGKILL
  void send(const boost::json::object& request);
  bool answers_before(Clock::time_point end);  // false: it did not until then
  boost::json::object read_answer();

  const std::string store_;
  pid_t pid_ = 0;
  int to_ = -1, from_ = -1;
  std::string read_;                             // of an answer that is not whole
  std::map<std::string, Clock::duration> took_;  // by what was to do
  int n_kills_ = 0;
};

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_LIFE_PROCESS_H_
