// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Writes a file to one open device from threads and processes at the same time: writers FILE DEVICE THREADS PROCESSES
 *
 * Each thread of each process writes all of FILE, every other one through a duplicate of the descriptor.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[1 << 20];
static ssize_t length;
static int device;

static void fail(const char *what)
{
	perror(what);
	/* With the last of all, the device is closed. */
	while (wait(NULL) > 0)
		;
	_exit(1);
}

static void *write_all(void *number)
{
	int to = (long)number % 2 ? dup(device) : device;

	for (ssize_t done = 0, taken; done < length; done += taken) {
		/* More than a device takes at once. */
		size_t size = length - done < 65536 ? length - done : 65536;

		taken = write(to, bytes + done, size);
		if (taken < 0)
			fail("write");
	}
	if (to != device)
		close(to);
	return NULL;
}

int main(int argc, char **argv)
{
	static pthread_t threads[64];
	int file, count, processes, status;

	if (argc != 5 || (count = atoi(argv[3])) > 64)
		return 2;
	processes = atoi(argv[4]);
	file = open(argv[1], O_RDONLY);
	length = read(file, bytes, sizeof(bytes));
	device = open(argv[2], O_WRONLY);
	if (file < 0 || length < 0 || device < 0)
		fail(argv[2]);
	while (--processes > 0 && fork() > 0)
		;
	/* Each child leaves the loop where it began. */
	for (long i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, write_all, (void *)i) != 0)
			fail("pthread_create");
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	while (wait(&status) > 0)
		if (status != 0)
			return 1;
	return 0;
}
