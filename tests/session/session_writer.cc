// Holds a conversation until it is over or the process is killed: session_writer <store>. Goes on
// where an earlier run stopped. Tells the standard output what it delivered.
#include <unistd.h>

#include "tests/session/session_script.h"

namespace {

using namespace cairn;

bool tell(std::uint32_t turn, std::uint32_t n_bytes, const std::string& bytes) {
  const test::WriterNote note = {turn, n_bytes};
  std::string out(reinterpret_cast<const char*>(&note), sizeof note);
  out += bytes;
  return write(STDOUT_FILENO, out.data(), out.size()) == static_cast<ssize_t>(out.size());
}

int deliver(Turn& turn, std::uint32_t number) {
  for (;;) {
    const Result<Event> event = turn.next();
    if (!event.ok()) return 10;
    if (event->kind == EventKind::kBlockBytes &&
        !tell(number, static_cast<std::uint32_t>(event->bytes.size()), event->bytes)) {
      return 11;
    }
    if (event->kind == EventKind::kTurnEnd) {
      if (!event->status.ok()) return 12;
      return tell(number, test::WriterNote::kEnded, {}) ? 0 : 11;
    }
  }
}

int run(const std::string& path) {
  const Result<Store> store = Store::open(test::live_runtime(), path);
  if (!store.ok()) return 2;
  Result<Session> session = Session::open(test::live_model(), *store, test::kScriptSession);
  if (!session.ok()) {
    session = Session::create(test::live_model(), *store, test::kScriptSession);
  }
  if (!session.ok()) return 3;
  for (;;) {
    const std::size_t n_messages = session->messages()->size();
    const auto number = static_cast<std::uint32_t>(n_messages / 2);
    if (number == test::kScriptTurns) return 0;
    if (n_messages % 2 == 0 && !session->append(Message::user(test::script_message(number))).ok()) {
      return 4;
    }
    Result<Turn> turn = session->info().turn_open
                            ? session->resume_turn()
                            : session->start_turn(test::script_options(number));
    if (!turn.ok()) return 5;
    if (const int code = deliver(*turn, number); code != 0) return code;
  }
}

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? run(argv[1]) : 1; }
