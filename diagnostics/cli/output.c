/* SPDX-License-Identifier: Apache-2.0
 *
 * output: see output.h.
 */
#include "diagnostics/cli/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/fd.h"

#define NARROW 40
#define WIDE   120 /* columns; longer lines are hard to read */

int output_write(const struct buf *b, struct err *err)
{
    if (b->failed)
        return err_set(err, ENOMEM, "no memory for the report");
    int rc = fd_write_full(STDOUT_FILENO, b->data, b->len, UINT64_MAX);
    return rc < 0 && rc != -EPIPE ? err_sys(err, -rc, "standard output") : 0;
}

static int width(void)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int n = 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        n = size.ws_col;
    if (n == 0 && columns)
        n = (int)strtol(columns, NULL, 10);
    if (n <= 0)
        n = 80;
    return n < NARROW ? NARROW : n > WIDE ? WIDE : n;
}

struct text_style output_style(const struct cli *cli)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool tty = isatty(STDOUT_FILENO);
    bool plain = (no_color && *no_color) || !term || strcmp(term, "dumb") == 0;
    return (struct text_style){
        .color = cli->color == CLI_COLOR_ALWAYS || (cli->color == CLI_COLOR_AUTO && tty && !plain),
        .quiet = cli->quiet,
        .verbose = cli->verbose,
        .width = tty ? width() : 0,
    };
}
