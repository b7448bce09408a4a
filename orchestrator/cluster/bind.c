// Has a process listen at one address of its machine. Ray has no setting for that (2.60). A TCP socket that is bound to
// all addresses, 0.0.0.0 or ::, is bound to the chosen one instead; any other bind stays as it is. LD_PRELOAD loads
// this, in children too: see listening.py.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAPPED_BYTES = 12 };             // before an IPv4 address in ::ffff:a.b.c.d
static struct in6_addr listen_address;  // an IPv4 address in that form
static atomic_bool is_set;              // then `listen_address` does not change any more

// For a process that learns its address after its start. Returns false for a text that is none, and for a second one.
bool orchestrator_listen_at(const char *text) {
  struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
  if (atomic_load(&is_set)) return false;
  if (inet_pton(AF_INET, text, address.s6_addr + MAPPED_BYTES) != 1 && inet_pton(AF_INET6, text, &address) != 1)
    return false;
  listen_address = address;
  atomic_store(&is_set, true);
  return true;
}

__attribute__((constructor)) static void read_environment(void) {  // not in bind: another thread may change it then
  const char *text = getenv("ORCHESTRATOR_RAY_ADDRESS");
  if (text != NULL) orchestrator_listen_at(text);
}

static bool has_option(int socket, int level, int name, int wanted) {
  int value;
  socklen_t size = sizeof value;
  return getsockopt(socket, level, name, &value, &size) == 0 && value == wanted;
}

static int system_bind(int socket, const struct sockaddr *address, socklen_t length) {
  return syscall(SYS_bind, socket, address, length);  // sets errno; libc's own has nothing else, and would be looked up
}

int bind(int socket, const struct sockaddr *address, socklen_t length) {
  struct sockaddr_in four;
  struct sockaddr_in6 six;
  if (!atomic_load(&is_set) || address == NULL || !has_option(socket, SOL_SOCKET, SO_TYPE, SOCK_STREAM))
    return system_bind(socket, address, length);
  bool is_four = IN6_IS_ADDR_V4MAPPED(&listen_address);
  // A socket of one family that cannot have an address of the other one is for this machine alone.
  if (length >= sizeof four && address->sa_family == AF_INET) {
    memcpy(&four, address, sizeof four);
    if (four.sin_addr.s_addr == htonl(INADDR_ANY)) {
      four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (is_four) memcpy(&four.sin_addr, listen_address.s6_addr + MAPPED_BYTES, sizeof four.sin_addr);
      return system_bind(socket, (struct sockaddr *)&four, sizeof four);
    }
  } else if (length >= sizeof six && address->sa_family == AF_INET6) {
    memcpy(&six, address, sizeof six);  // with its flow and scope
    if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr)) {
      six.sin6_addr = is_four && has_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1) ? in6addr_loopback : listen_address;
      return system_bind(socket, (struct sockaddr *)&six, sizeof six);
    }
  }
  return system_bind(socket, address, length);
}
