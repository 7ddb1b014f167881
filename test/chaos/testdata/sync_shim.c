/*
 * A disk whose fsync is slow or fails, preloaded into redis-server.
 *
 * fsync and fdatasync first wait and then fail, as two words of a file say that is
 * mapped into memory and shared with the test: nanoseconds, and an error number. Both 0
 * is the true disk, and so is a process without SYNC_SHIM_FILE.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

static const int64_t *words; /* NULL until mapped */

__attribute__((constructor)) static void map_words(void) {
	const char *path = getenv("SYNC_SHIM_FILE");
	if (path == NULL)
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	void *page = mmap(NULL, 2 * sizeof *words, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page != MAP_FAILED)
		words = page;
}

static int sync_by(long number, int fd) {
	if (words != NULL) {
		int64_t ns = __atomic_load_n(&words[0], __ATOMIC_RELAXED);
		int64_t error = __atomic_load_n(&words[1], __ATOMIC_RELAXED);
		if (ns > 0) {
			struct timespec wait = {ns / NS_PER_S, ns % NS_PER_S};
			while (nanosleep(&wait, &wait) != 0 && errno == EINTR)
				;
		}
		if (error != 0) {
			errno = (int)error;
			return -1;
		}
	}
	return (int)syscall(number, fd);
}

int fsync(int fd) { return sync_by(SYS_fsync, fd); }

int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }
