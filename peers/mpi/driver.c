/* MPI as its users call it: MPI_Send and MPI_Recv between two ranks of one machine. */
#include "driver.h"

#include <mpi.h>

static int other;

static const char *transport_send(const void *message, size_t bytes) {
    int sent = MPI_Send(message, (int)bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD);
    return sent == MPI_SUCCESS ? NULL : "MPI_Send failed";
}

static const char *transport_receive(void *buffer, size_t bytes) {
    MPI_Status status;
    int received, count;
    received = MPI_Recv(buffer, (int)bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, &status);
    if (received != MPI_SUCCESS || MPI_Get_count(&status, MPI_BYTE, &count) != MPI_SUCCESS)
        return "MPI_Recv failed";
    return (size_t)count == bytes ? NULL : "the message has another length";
}

int main(int argc, char **argv) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int rank, length;
    begin();
    if (argc != 2 || MPI_Init(&argc, &argv) != MPI_SUCCESS) {
        fprintf(stderr, "usage: mpirun -n 2 driver SOCKET; haul channel bench starts it\n");
        return 2;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    MPI_Get_library_version(version, &length);
    /* The text begins with the library and its version. */
    version[strcspn(version, ",\n")] = 0;
    int code = serve(argv[1], rank == 1, version);
    MPI_Finalize();
    return code;
}
