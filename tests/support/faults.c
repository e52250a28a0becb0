// What the operating system answers to one process, so that a test can plant a fault in it: loaded before libc
// (LD_PRELOAD), it counts the process's calls by kind, lets the n-th of them fail, come up short or be the last one, and
// moves its clocks. Files count where their path begins with a root; allocations from a size on. Counters and the planted
// fault are in memory that children share, so that they can be read after a child was killed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, CREATE, READ, WRITE, SYNC, RESERVE, RENAME, MKDIR, CHMOD, REMOVE, ALLOCATE, THREAD, CLOCK, KINDS };
enum { FAIL, SHORT, SIGNAL, STAND, SET };

struct plan {
  int armed;
  unsigned kinds;    // bits of the kinds that count together
  long first, last;  // which of them, counted from 0, meet the fault
  int action;
  int value;       // FAIL: errno; SIGNAL: its number
  double seconds;  // STAND: for how long CLOCK_MONOTONIC does
  double jump;     // of CLOCK_REALTIME, from the first time it is met on
  size_t least;    // bytes of an allocation that counts
  char root[PATH_MAX];
  atomic_long counts[KINDS];
  atomic_long together;  // of all of `kinds`
  atomic_int met;        // how often
};

static struct plan* shared;
static int here;  // whether this process is the one that meets faults, not the one that forks it
static _Atomic unsigned char watched[65536];
static atomic_llong stands_at, stands_until;  // nanoseconds of CLOCK_MONOTONIC

struct plan* faults(void) { return shared; }

void meet_faults(void) { here = 1; }

static int active(void) { return here && shared != NULL && shared->armed; }

#define REAL(result, name, ...)                     \
  static result (*real_##name)(__VA_ARGS__);        \
  static inline void find_##name(void) {            \
    if (!real_##name) real_##name = dlsym(RTLD_NEXT, #name); \
  }

__attribute__((constructor)) static void begin(void) {
  void* memory = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  shared = memory;
}

// What a call of `kind` is to do: -1 to go on, else an action. A signal is sent here.
static int met(int kind) {
  if (!active()) return -1;
  atomic_fetch_add(&shared->counts[kind], 1);
  if (!(shared->kinds >> kind & 1)) return -1;
  const long number = atomic_fetch_add(&shared->together, 1);
  if (number < shared->first || number > shared->last) return -1;
  atomic_fetch_add(&shared->met, 1);
  if (shared->action != SIGNAL) return shared->action;
  syscall(SYS_kill, getpid(), shared->value);
  return -1;
}

static int fails(int kind) {
  if (met(kind) != FAIL) return 0;
  errno = shared->value;
  return 1;
}

static int ours(const char* path) {
  return active() && path != NULL && shared->root[0] && !strncmp(path, shared->root, strlen(shared->root));
}

static int is_watched(int file) { return file >= 0 && file < 65536 && watched[file]; }

static int ours_at(int folder, const char* path) { return ours(path) || (path[0] != '/' && is_watched(folder)); }

static int opened(int file) {
  if (file >= 0 && file < 65536) watched[file] = 1;
  return file;
}

REAL(int, openat, int, const char*, int, ...)
static int open_at(int folder, const char* path, int flags, mode_t mode) {
  find_openat();
  if (!ours_at(folder, path)) return real_openat(folder, path, flags, mode);
  if (fails(flags & (O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE ? CREATE : OPEN)) return -1;
  return opened(real_openat(folder, path, flags, mode));
}

#define MODE(flags)                                              \
  mode_t mode = 0;                                               \
  if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
    va_list rest;                                                \
    va_start(rest, flags);                                       \
    mode = va_arg(rest, mode_t);                                 \
    va_end(rest);                                                \
  }
int open(const char* path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char* path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char* path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }
int openat64(int folder, const char* path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }

REAL(FILE*, fopen64, const char*, const char*)
static FILE* open_stream(const char* path, const char* mode) {
  find_fopen64();
  if (ours(path) && fails(strpbrk(mode, "wa") ? CREATE : OPEN)) return NULL;
  FILE* stream = real_fopen64(path, mode);
  if (stream != NULL && ours(path)) opened(fileno(stream));
  return stream;
}
FILE* fopen(const char* path, const char* mode) { return open_stream(path, mode); }
FILE* fopen64(const char* path, const char* mode) { return open_stream(path, mode); }

REAL(int, close, int)
int close(int file) {
  find_close();
  if (file >= 0 && file < 65536) watched[file] = 0;
  return real_close(file);
}

// Reads and writes: `size` may become less, but not 0.
static int moves(int kind, int file, size_t* size) {
  if (!is_watched(file)) return 1;
  const int action = met(kind);
  if (action == FAIL) {
    errno = shared->value;
    return 0;
  }
  if (action == SHORT && *size > 1) *size /= 2;
  return 1;
}
#define MOVES(name, kind, pointer, extra, given)                  \
  REAL(ssize_t, name, int, pointer, size_t extra)                 \
  ssize_t name(int file, pointer data, size_t size MORE_##given) { \
    find_##name();                                                \
    if (!moves(kind, file, &size)) return -1;                     \
    return real_##name(file, data, size GIVE_##given);            \
  }
#define MORE_none
#define GIVE_none
#define MORE_offset , off_t offset
#define GIVE_offset , offset
#define NOTHING
#define AN_OFFSET , off_t
MOVES(read, READ, void*, NOTHING, none)
MOVES(pread, READ, void*, AN_OFFSET, offset)
MOVES(pread64, READ, void*, AN_OFFSET, offset)
MOVES(write, WRITE, const void*, NOTHING, none)
MOVES(pwrite, WRITE, const void*, AN_OFFSET, offset)
MOVES(pwrite64, WRITE, const void*, AN_OFFSET, offset)

#define PLAIN(name, kind, counts, declared, ...) \
  REAL(int, name, declared)                      \
  int name(declared) {                           \
    find_##name();                               \
    if ((counts) && fails(kind)) return -1;      \
    return real_##name(__VA_ARGS__);             \
  }
#define _(...) __VA_ARGS__
PLAIN(fsync, SYNC, is_watched(file), _(int file), file)
PLAIN(fdatasync, SYNC, is_watched(file), _(int file), file)
PLAIN(ftruncate, RESERVE, is_watched(file), _(int file, off_t size), file, size)
PLAIN(ftruncate64, RESERVE, is_watched(file), _(int file, off_t size), file, size)
PLAIN(fallocate, RESERVE, is_watched(file), _(int file, int mode, off_t at, off_t size), file, mode, at, size)
PLAIN(fallocate64, RESERVE, is_watched(file), _(int file, int mode, off_t at, off_t size), file, mode, at, size)
PLAIN(rename, RENAME, ours(from), _(const char* from, const char* to), from, to)
PLAIN(mkdir, MKDIR, ours(path), _(const char* path, mode_t mode), path, mode)
PLAIN(chmod, CHMOD, ours(path), _(const char* path, mode_t mode), path, mode)
PLAIN(fchmod, CHMOD, is_watched(file), _(int file, mode_t mode), file, mode)
PLAIN(unlink, REMOVE, ours(path), _(const char* path), path)
PLAIN(rmdir, REMOVE, ours(path), _(const char* path), path)
PLAIN(unlinkat, REMOVE, ours_at(folder, path), _(int folder, const char* path, int flags), folder, path, flags)

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static int refused(size_t size) {
  return active() && size >= shared->least && fails(ALLOCATE);
}
void* malloc(size_t size) { return refused(size) ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return refused(count * size) ? NULL : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return refused(size) ? NULL : __libc_realloc(old, size); }
void* aligned_alloc(size_t unit, size_t size) { return refused(size) ? NULL : __libc_memalign(unit, size); }
void* memalign(size_t unit, size_t size) { return refused(size) ? NULL : __libc_memalign(unit, size); }
int posix_memalign(void** found, size_t unit, size_t size) {
  void* memory = refused(size) ? NULL : __libc_memalign(unit, size);
  if (memory == NULL) return ENOMEM;
  *found = memory;
  return 0;
}

static void* map(void* at, size_t size, int access, int flags, int file, off_t offset) {
  if (flags & MAP_ANONYMOUS && refused(size)) return MAP_FAILED;
  return (void*)syscall(SYS_mmap, at, size, access, flags, file, offset);
}
void* mmap(void* at, size_t size, int access, int flags, int file, off_t offset) {
  return map(at, size, access, flags, file, offset);
}
void* mmap64(void* at, size_t size, int access, int flags, int file, off_t offset) {
  return map(at, size, access, flags, file, offset);
}

REAL(int, pthread_create, pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)
int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*work)(void*), void* with) {
  find_pthread_create();
  return fails(THREAD) ? EAGAIN : real_pthread_create(thread, how, work, with);
}

static long long nanoseconds(const struct timespec* t) { return t->tv_sec * 1000000000LL + t->tv_nsec; }

REAL(int, clock_gettime, clockid_t, struct timespec*)
int clock_gettime(clockid_t which, struct timespec* t) {
  find_clock_gettime();
  const int code = real_clock_gettime(which, t);
  if (code || !active() || (which != CLOCK_MONOTONIC && which != CLOCK_REALTIME)) return code;
  long long now = nanoseconds(t);
  const int action = met(CLOCK);
  if (which == CLOCK_MONOTONIC) {
    // It stands still for `seconds` when it meets its fault, and then jumps to the system's time: the kernel's timeouts
    // use that, and would else end before the process's own deadlines.
    if (action == STAND && now >= stands_until) {
      stands_at = now;
      stands_until = now + (long long)(shared->seconds * 1e9);
    }
    now = now < stands_until ? stands_at : now;
  } else if (atomic_load(&shared->met)) {
    now += (long long)(shared->jump * 1e9);
  }
  t->tv_sec = now / 1000000000LL;
  t->tv_nsec = now % 1000000000LL;
  return code;
}
