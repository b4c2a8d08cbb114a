/* Open MPI, for `syncline bench allreduce --peers`: OP DTYPE REDOP SECS RUNS SIZE... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *operation, *redop;
static MPI_Datatype type;
static MPI_Op by;
static int rank, world, real, item;
static char *array, *other;
static int *counts, *starts;

static double number(int of, long index) { return strcmp(redop, "prod") == 0 ? 1 + (of + index) % 2 : 1 + (3 * of + index) % 5; }

static void put(char *at, long index, double value) {
    if (real && item == 4) ((float *)at)[index] = (float)value;
    else if (real) ((double *)at)[index] = value;
    else if (item == 4) ((int *)at)[index] = (int)value;
    else ((long long *)at)[index] = (long long)value;
}

static double get(const char *at, long index) {
    if (real) return item == 4 ? ((const float *)at)[index] : ((const double *)at)[index];
    return item == 4 ? ((const int *)at)[index] : (double)((const long long *)at)[index];
}

static double combined(long index) {
    double all = number(0, index);
    for (int of = 1; of < world; of++) {
        double next = number(of, index);
        if (strcmp(redop, "sum") == 0) all += next;
        else if (strcmp(redop, "prod") == 0) all *= next;
        else if (strcmp(redop, "min") == 0) all = next < all ? next : all;
        else all = next > all ? next : all;
    }
    return all;
}

static int is(const char *name) { return strcmp(operation, name) == 0; }

static void step(int count) {
    char *own = array + (long)starts[rank] * item;
    if (is("allreduce")) MPI_Allreduce(MPI_IN_PLACE, array, count, type, by, MPI_COMM_WORLD);
    else if (is("reduce")) MPI_Reduce(rank == 0 ? MPI_IN_PLACE : array, array, count, type, by, 0, MPI_COMM_WORLD);
    else if (is("broadcast")) MPI_Bcast(array, count, type, 0, MPI_COMM_WORLD);
    else if (is("scatter")) MPI_Scatterv(array, counts, starts, type, other, counts[rank], type, 0, MPI_COMM_WORLD);
    else if (is("gather")) MPI_Gatherv(own, counts[rank], type, other, counts, starts, type, 0, MPI_COMM_WORLD);
    else if (is("all_gather")) MPI_Allgatherv(own, counts[rank], type, other, counts, starts, type, MPI_COMM_WORLD);
    else if (is("reduce_scatter")) MPI_Reduce_scatter(array, other, counts, type, by, MPI_COMM_WORLD);
    else if (is("all_to_all")) {
        int *mine = malloc(sizeof(int) * world), *places = malloc(sizeof(int) * world);
        for (int of = 0; of < world; of++) mine[of] = counts[rank], places[of] = of * counts[rank];
        MPI_Alltoallv(array, counts, starts, type, other, mine, places, type, MPI_COMM_WORLD);
        free(mine), free(places);
    } else MPI_Barrier(MPI_COMM_WORLD);
}

static long check(int count) {
    long wrong = 0;
    for (long index = 0; index < count; index++) put(array, index, number(rank, index));
    step(count);
    if (is("allreduce") || (is("reduce") && rank == 0))
        for (long index = 0; index < count; index++) wrong += get(array, index) != combined(index);
    if (is("broadcast"))
        for (long index = 0; index < count; index++) wrong += get(array, index) != number(0, index);
    if (is("all_gather") || (is("gather") && rank == 0))
        for (int of = 0; of < world; of++)
            for (long index = starts[of]; index < starts[of] + counts[of]; index++) wrong += get(other, index) != number(of, index);
    if (is("scatter"))
        for (long index = 0; index < counts[rank]; index++) wrong += get(other, index) != number(0, starts[rank] + index);
    if (is("reduce_scatter"))
        for (long index = 0; index < counts[rank]; index++) wrong += get(other, index) != combined(starts[rank] + index);
    if (is("all_to_all"))
        for (int of = 0; of < world; of++)
            for (long index = 0; index < counts[rank]; index++)
                wrong += get(other, (long)of * counts[rank] + index) != number(of, starts[rank] + index);
    return wrong;
}

static int ascending(const void *one, const void *two) {
    double difference = *(const double *)one - *(const double *)two;
    return difference < 0 ? -1 : difference > 0;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    operation = argv[1], redop = argv[3];
    real = argv[2][0] == 'f';
    item = strstr(argv[2], "64") ? 8 : 4;
    type = real ? (item == 4 ? MPI_FLOAT : MPI_DOUBLE) : (item == 4 ? MPI_INT : MPI_LONG_LONG);
    by = strcmp(redop, "sum") == 0 ? MPI_SUM : strcmp(redop, "prod") == 0 ? MPI_PROD : strcmp(redop, "min") == 0 ? MPI_MIN : MPI_MAX;
    double secs = atof(argv[4]);
    int runs = atoi(argv[5]);
    counts = malloc(sizeof(int) * world), starts = malloc(sizeof(int) * world);
    for (int given = 6; given < argc; given++) {
        long size = atol(argv[given]);
        int count = (int)(size / item);
        for (int of = 0; of < world; of++) {
            counts[of] = count / world + (of < count % world);
            starts[of] = of == 0 ? 0 : starts[of - 1] + counts[of - 1];
        }
        array = malloc(size + 8), other = malloc(size + 8L * item * world);
        memset(other, 1, size + 8L * item * world);
        long wrong = check(count);
        memset(array, 0, size + 8);
        double begun = MPI_Wtime();
        for (int each = 0; each < 5; each++) step(count);
        double wanted = secs / ((MPI_Wtime() - begun) / 5);
        long rounds = wanted < 1 ? 1 : wanted > 2e6 ? 2000000 : (long)wanted;
        MPI_Allreduce(MPI_IN_PLACE, &rounds, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD);
        double *each = malloc(sizeof(double) * rounds * runs), *of_runs = malloc(sizeof(double) * runs);
        for (int run = 0; run < runs; run++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime(), before = start;
            for (long round = 0; round < rounds; round++) {
                step(count);
                double now = MPI_Wtime();
                each[run * rounds + round] = now - before;
                before = now;
            }
            of_runs[run] = (before - start) / rounds;
        }
        wrong += check(count);
        qsort(each, rounds * runs, sizeof(double), ascending);
        qsort(of_runs, runs, sizeof(double), ascending);
        printf("{\"size\": %ld, \"time\": %.9g, \"p99\": %.9g, \"wrong\": %ld}\n", size, of_runs[runs / 2],
               each[(long)(0.99 * (rounds * runs - 1))], wrong);
        fflush(stdout);
        free(array), free(other), free(each), free(of_runs);
    }
    MPI_Finalize();
    return 0;
}
