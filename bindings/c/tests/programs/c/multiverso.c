/* A program of Multiverso's, as its bindings used the C functions: arrays and matrices of floats, numbers of its own tests. */
#include "checks.h"

int main(void)
{
    char *argv[] = {"program", "-sync=false", "--my-flag", "-logtostderr=true", NULL};
    int argc = 4;
    float numbers[110], got[110], rows[40];
    TableHandler array, matrix;

    CHECK(MV_NumWorkers() == -1); /* not yet: said on stderr */
    MV_Init(&argc, argv);
    CHECK(argc == 2 && strcmp(argv[1], "--my-flag") == 0 && argv[2] == NULL);
    int workers = MV_NumWorkers();
    CHECK(workers >= 1 && MV_WorkerId() == MV_Rank() && MV_ServerId() == MV_Rank() && MV_Size() == workers && MV_NumServers() == workers);

    enum { SIZE = 10000 };
    float *delta = malloc(SIZE * sizeof *delta), *sum = malloc(SIZE * sizeof *sum);
    for (int i = 0; i < SIZE; ++i) delta[i] = (float)(i + 1);
    MV_NewArrayTable(SIZE, &array);
    for (int round = 0; round < 10; ++round) {
        MV_AddAsyncArrayTable(array, delta, SIZE);
        MV_AddArrayTable(array, delta, SIZE);
        MV_Barrier();
        MV_GetArrayTable(array, sum, SIZE);
        for (int i = 0; i < SIZE; ++i) CHECK(sum[i] == (float)(i + 1) * (float)((round + 1) * 2 * workers));
        MV_Barrier();
    }

    int ids[4] = {0, 1, 5, 10};
    for (int i = 0; i < 110; ++i) numbers[i] = (float)i;
    for (int i = 0; i < 4; ++i) memcpy(rows + 10 * i, numbers + 10 * ids[i], 10 * sizeof *rows);
    MV_NewMatrixTable(11, 10, &matrix);
    for (int count = 1; count <= 20; ++count) {
        (count % 2 ? MV_AddMatrixTableAll : MV_AddAsyncMatrixTableAll)(matrix, numbers, 110);
        (count % 2 ? MV_AddAsyncMatrixTableByRows : MV_AddMatrixTableByRows)(matrix, rows, 40, ids, 4);
        MV_Barrier();
        MV_GetMatrixTableAll(matrix, got, 110);
        for (int i = 0; i < 110; ++i) {
            int twice = i / 10 == 0 || i / 10 == 1 || i / 10 == 5 || i / 10 == 10;
            CHECK(got[i] == (float)(i * count * workers * (twice ? 2 : 1)));
        }
        float some[40];
        MV_GetMatrixTableByRows(matrix, some, 40, ids, 4);
        for (int i = 0; i < 40; ++i) CHECK(some[i] == rows[i] * (float)(count * workers * 2));
        MV_Barrier();
    }

    float one = 1;
    MV_Aggregate(&one, 1);
    CHECK(one == (float)workers);

    /* What ended the original's process is an error that is told. */
    syncline_status before = syncline_last_error_kind();
    (void)before;
    MV_GetArrayTable(array, sum, -1);
    CHECK(syncline_last_error_kind() == SYNCLINE_ARGUMENT);
    MV_AddArrayTable(NULL, delta, SIZE);
    CHECK(syncline_last_error_kind() == SYNCLINE_ARGUMENT);
    MV_Barrier();
    MV_ShutDown();
    MV_ShutDown(); /* a second time does nothing */

    /* The updater of all tables, and one that there is not. */
    char *strange[] = {"program", "-updater_type=magic", NULL}, *sgd[] = {"program", "-updater_type=sgd", NULL};
    int two = 2;
    if (workers == 1) { /* a process joins its launcher's job once */
        MV_Init(&two, strange);
        CHECK(syncline_last_error_kind() == SYNCLINE_CONFIGURATION);
        /* Roles that are none, and one that this process does not have. */
        char *captain[] = {"program", "-ps_role=captain", NULL}, *server[] = {"program", "-ps_role=server", NULL};
        two = 2;
        MV_Init(&two, captain);
        CHECK(syncline_last_error_kind() == SYNCLINE_ARGUMENT && strstr(syncline_last_error(), "captain"));
        two = 2;
        MV_Init(&two, server);
        CHECK(syncline_last_error_kind() == SYNCLINE_CONFIGURATION && strstr(syncline_last_error(), "both a worker and a server"));
        char *any[] = {"program", "-ps_role=default", NULL};
        two = 2;
        MV_Init(&two, any);
        CHECK(two == 1 && MV_NumWorkers() == 1);
        MV_ShutDown();
        two = 2;
        MV_Init(&two, sgd);
        CHECK(two == 1);
        MV_NewArrayTable(3, &array);
        MV_AddArrayTable(array, delta, 3);
        MV_GetArrayTable(array, sum, 3);
        CHECK(sum[0] == -1 && sum[2] == -3);
        MV_ShutDown();
    }
    free(delta);
    free(sum);
    return 0;
}
