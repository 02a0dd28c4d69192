// Who sent the last SIGTERM: MindSpore sets a handler for SIGINT in every graph that it runs, which sends SIGTERM to this
// very process. What Ctrl-C asked for can then be told from a SIGTERM of somebody else.
#include <signal.h>
#include <unistd.h>

namespace {

struct sigaction behind;
volatile sig_atomic_t from_interrupt = 0;

void note(int number, siginfo_t* info, void* context) {
  struct sigaction interrupt;
  // Handlers that Python sets for SIGINT take no `siginfo_t`; that of MindSpore does.
  const bool taken = sigaction(SIGINT, nullptr, &interrupt) == 0 && (interrupt.sa_flags & SA_SIGINFO) != 0;
  from_interrupt = taken && info->si_code == SI_USER && info->si_pid == getpid();
  if ((behind.sa_flags & SA_SIGINFO) != 0) {
    behind.sa_sigaction(number, info, context);
  } else {
    behind.sa_handler(number);
  }
}

}  // namespace

extern "C" {

// Puts a note of the sender before the handler of SIGTERM, if there is one.
__attribute__((visibility("default"))) void note_sender() {
  struct sigaction now;
  if (sigaction(SIGTERM, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0) {
    if (now.sa_sigaction == note) return;
  } else if (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN) {
    return;
  }
  behind = now;
  now.sa_flags |= SA_SIGINFO;
  now.sa_sigaction = note;
  sigaction(SIGTERM, &now, nullptr);
}

// Whether the last SIGTERM was what MindSpore made of a SIGINT.
__attribute__((visibility("default"))) int sent_by_interrupt() { return from_interrupt; }
}
