/* What the programs here share: a check that says where it failed. */
#ifndef CHECKS_H
#define CHECKS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "syncline.h"

#define CHECK(truth)                                                                                      \
    do {                                                                                                  \
        if (!(truth)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s\nlast error: %s\n", __FILE__, __LINE__, #truth, syncline_last_error()); \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

#define OK(call) CHECK((call) == SYNCLINE_OK)
/* The call must fail with this status, and the thread must remember it. */
#define FAILS(status, call)                              \
    do {                                                 \
        CHECK((call) == (status));                       \
        CHECK(syncline_last_error_kind() == (status));   \
        CHECK(strlen(syncline_last_error()) > 0);        \
    } while (0)

/* Whether programs can be started: valgrind does not know the call that watches them. */
static inline int can_spawn(void)
{
    syncline_child *child;
    syncline_status status = syncline_spawn("true", NULL, NULL, &child);
    if (status == SYNCLINE_OK) return syncline_child_wait(child, NULL, 20, NULL, NULL) == SYNCLINE_OK && syncline_child_free(child) == SYNCLINE_OK;
    CHECK(status == SYNCLINE_SYSTEM);
    printf("skipped: no program can be started here\n");
    return 0;
}

#endif
