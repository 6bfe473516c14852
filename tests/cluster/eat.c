// SPDX-License-Identifier: Apache-2.0
//
// A rank that takes more memory than it may: "eat self", or "eat", whose child is killed; it then
// ends with 128 + 9.
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE ((size_t)4 << 20)
#define MOST  256 // pieces (1 GiB): without a memory limit the program ends then

static int eat(void)
{
    for (int i = 0; i < MOST; i++) {
        char *piece = malloc(PIECE);
        if (!piece)
            return 3;
        memset(piece, i + 1, PIECE);
    }
    return 4;
}

int main(int argc, char **argv)
{
    int status = 0;
    if (argc > 1 && strcmp(argv[1], "self") == 0)
        return eat();
    pid_t child = fork();
    if (child == 0)
        _exit(eat());
    if (child < 0 || waitpid(child, &status, 0) < 0)
        return 5;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
