/*
 * Cases by their names. A program runs all of them, or those that are named, and ends with 1 at the first check that fails.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds)                                                                     \
	do {                                                                             \
		if (!(holds)) {                                                          \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

struct named_case {
	const char *name;
	void (*run)(void);
};

#define CASE(function)       \
	{                    \
		#function, function \
	}

static inline int run_cases(const struct named_case *cases, size_t count, int argc, char **argv)
{
	for (size_t i = 0; i < count; i++) {
		int wanted = argc < 2;

		for (int j = 1; j < argc; j++)
			wanted |= strcmp(argv[j], cases[i].name) == 0;
		if (!wanted)
			continue;
		cases[i].run();
		printf("ok %s\n", cases[i].name);
		fflush(stdout);
	}
	return 0;
}

/* Memory that is not zero at first. */
static inline void *memory(size_t size)
{
	unsigned char *bytes = malloc(size > 0 ? size : 1);

	CHECK(bytes != NULL);
	/* Of large workspaces most is never touched. */
	memset(bytes, 0xa5, size < 4096 ? size : 4096);
	return bytes;
}

/* Numbers that are the same each time. */
static inline unsigned int random_number(void)
{
	static unsigned long long state = 1;

	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned int)(state >> 33);
}

#endif
