/* What went wrong is each thread's own affair: two threads fail differently at the same time, and each reads its own words. */
#include <pthread.h>

#include "checks.h"

#define ROUNDS 200

static pthread_barrier_t together;

/* Both have failed before either asks, every round. */
static void met(void) { pthread_barrier_wait(&together); }

static void *wrong_handles(void *unused)
{
    (void)unused;
    CHECK(strcmp(syncline_last_error(), "") == 0 && syncline_last_error_kind() == SYNCLINE_OK);
    met();
    for (int i = 0; i < ROUNDS; ++i) {
        CHECK(syncline_barrier(NULL) == SYNCLINE_ARGUMENT);
        const char *words = syncline_last_error();
        met();
        CHECK(syncline_last_error_kind() == SYNCLINE_ARGUMENT && syncline_last_error_pid() == -1);
        CHECK(words == syncline_last_error() && strstr(words, "session") != NULL); /* ours until our next failure, whatever others do */
        met();
    }
    return NULL;
}

static void *wrong_shapes(void *table)
{
    float numbers[3] = {1, 2, 3};
    CHECK(syncline_last_error_kind() == SYNCLINE_OK);
    met();
    for (int i = 0; i < ROUNDS; ++i) {
        CHECK(syncline_table_add(table, numbers, 3, NULL, 1) == SYNCLINE_SHAPE_MISMATCH);
        const char *words = syncline_last_error();
        met();
        CHECK(syncline_last_error_kind() == SYNCLINE_SHAPE_MISMATCH);
        CHECK(words == syncline_last_error() && strstr(words, "session") == NULL && strchr(words, '3') != NULL);
        met();
    }
    return NULL;
}

int main(void)
{
    syncline_session *session;
    syncline_table *table;
    syncline_table_options options = {.updater = "add"};
    pthread_t threads[2];
    OK(syncline_open(0, 10, &session));
    OK(syncline_array_create(session, 4, &options, NULL, 0, &table));
    syncline_table *never;
    syncline_table_options unknown = {.updater = "magic"};
    FAILS(SYNCLINE_CONFIGURATION, syncline_array_create(session, 4, &unknown, NULL, 0, &never));
    char before[400];
    snprintf(before, sizeof before, "%s", syncline_last_error());

    CHECK(pthread_barrier_init(&together, NULL, 2) == 0);
    CHECK(pthread_create(&threads[0], NULL, wrong_handles, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, wrong_shapes, table) == 0);
    for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(pthread_barrier_destroy(&together) == 0);

    CHECK(syncline_last_error_kind() == SYNCLINE_CONFIGURATION && strcmp(before, syncline_last_error()) == 0); /* theirs are not this thread's */
    OK(syncline_table_free(table));
    OK(syncline_close(session));
    return 0;
}
