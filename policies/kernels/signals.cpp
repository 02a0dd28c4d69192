// The sender of the last SIGTERM. In every graph that it runs, MindSpore sets a handler for SIGINT that sends SIGTERM
// to its own process. This code distinguishes such a SIGTERM, which came from Ctrl-C, from any other.
#include <signal.h>
#include <unistd.h>

namespace {

struct sigaction behind;
volatile sig_atomic_t from_interrupt = 0;

void note(int number, siginfo_t* info, void* context) {
  struct sigaction interrupt;
  // MindSpore's handler for SIGINT takes a `siginfo_t`; handlers that Python sets do not.
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

// If SIGTERM has a handler, makes it record the sender first.
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

// Whether MindSpore sent the last SIGTERM in response to a SIGINT.
__attribute__((visibility("default"))) int sent_by_interrupt() { return from_interrupt; }
}
