/* The calls of a table and of stores from C, so many at a time as `measure` says: calls 1 16 262144 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "syncline.h"

static syncline_table *table;
static syncline_kvstore *store;
static syncline_kv_key key;
static syncline_kv_array delta, out;
static size_t size;

static void check(syncline_status status)
{
    if (status == SYNCLINE_OK) return;
    fprintf(stderr, "%s\n", syncline_last_error());
    exit(1);
}

static void add(void) { check(syncline_table_add(table, delta.data, size, NULL, 0)); }
static void get(void) { check(syncline_table_get(table, out.data, size)); }
static void push(void) { check(syncline_kvstore_push(store, &key, &delta, 1)); }
static void pull(void) { check(syncline_kvstore_pull(store, &key, &out, 1, 1)); }

static double microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

/* Says what the calls are; then, for every number that comes, makes so many and says how long one took, in microseconds of processor time. */
static void play(const char *name, void (*call)(void))
{
    char line[32];
    printf("%s %zu\n", name, size);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long times = atol(line);
        if (times == 0) return;
        double began = microseconds();
        for (long i = 0; i < times; i++) call();
        printf("%.4f\n", (microseconds() - began) / times);
        fflush(stdout);
    }
}

int main(int argc, char *argv[])
{
    syncline_session *session;
    syncline_kvstore *local, *distributed;
    check(syncline_open(0, 0, &session));
    check(syncline_kvstore_create(NULL, "local", &local));
    check(syncline_kvstore_create(session, "dist_async", &distributed));
    check(syncline_kvstore_set_optimizer(distributed, "test", NULL, 0));
    for (int i = 1; i < argc; i++) {
        size = strtoul(argv[i], NULL, 10);
        float *numbers = malloc(size * sizeof *numbers);
        for (size_t place = 0; place < size; place++) numbers[place] = 1;
        key = (syncline_kv_key){.name = argv[i]};
        delta = (syncline_kv_array){.dtype = SYNCLINE_FLOAT32, .axes = 1, .dims = &size, .data = numbers};
        out = delta;
        out.data = calloc(size, sizeof *numbers);
        check(syncline_array_create(session, size, NULL, NULL, 0, &table));
        play("table add", add);
        play("table get", get);
        check(syncline_kvstore_init(local, &key, &delta, 1));
        check(syncline_kvstore_init(distributed, &key, &delta, 1));
        store = distributed;
        play("dist_async push", push);
        play("dist_async pull", pull);
        store = local;
        play("local push", push);
        play("local pull", pull);
    }
    return syncline_close(session) != SYNCLINE_OK;
}
