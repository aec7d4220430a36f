/* UCX as its users call it: tag send and receive between two workers, each polled by its process.
 * UCX chooses its transports (posix, sysv, cma) itself. */
#include "driver.h"

#include <ucp/api/ucp.h>

static ucp_worker_h worker;
static ucp_ep_h peer;

enum { TAG = 1 };

static const char *finish(ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request))
        return request ? ucs_status_string(UCS_PTR_STATUS(request)) : NULL;
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    ucp_request_free(request);
    return status == UCS_OK ? NULL : ucs_status_string(status);
}

static const char *transport_send(const void *message, size_t bytes) {
    ucp_request_param_t parameters = {0};
    return finish(ucp_tag_send_nbx(peer, message, bytes, TAG, &parameters));
}

static const char *transport_receive(void *buffer, size_t bytes) {
    ucp_request_param_t parameters = {0};
    return finish(ucp_tag_recv_nbx(worker, buffer, bytes, TAG, (ucp_tag_t)-1, &parameters));
}

/* Writes this end's address to a file beside the run's socket. The file appears in one step. */
static int publish(const char *path, const void *address, size_t bytes) {
    char hidden[512];
    snprintf(hidden, sizeof hidden, "%s.new", path);
    FILE *file = fopen(hidden, "w");
    if (!file || fwrite(address, 1, bytes, file) != bytes || fclose(file))
        return -1;
    return rename(hidden, path);
}

/* Waits for the file with the other end's address and reads it. */
static int await(const char *path, void *address, size_t room) {
    for (int attempt = 0; attempt < 10000; attempt++) {
        FILE *file = fopen(path, "r");
        if (file) {
            size_t bytes = fread(address, 1, room, file);
            fclose(file);
            return bytes > 0 && bytes < room ? 0 : -1;
        }
        usleep(1000);
    }
    return -1;
}

static const char *connect_ends(const char *control, int is_b) {
    char own[480], other[480], remote[65536];
    ucp_address_t *address;
    size_t bytes;
    snprintf(own, sizeof own, "%s.%c", control, is_b ? 'b' : 'a');
    snprintf(other, sizeof other, "%s.%c", control, is_b ? 'a' : 'b');
    if (ucp_worker_get_address(worker, &address, &bytes) != UCS_OK)
        return "the worker has no address";
    int published = publish(own, address, bytes);
    ucp_worker_release_address(worker, address);
    if (published || await(other, remote, sizeof remote))
        return "the other end did not start in time";
    ucp_ep_params_t parameters = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address = (ucp_address_t *)remote};
    ucs_status_t status = ucp_ep_create(worker, &parameters, &peer);
    return status == UCS_OK ? NULL : ucs_status_string(status);
}

static const char *start(void) {
    ucp_context_h context;
    ucp_config_t *config;
    ucp_params_t parameters = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_parameters = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                             .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status == UCS_OK) {
        status = ucp_init(&parameters, config, &context);
        ucp_config_release(config);
    }
    if (status == UCS_OK)
        status = ucp_worker_create(context, &worker_parameters, &worker);
    return status == UCS_OK ? NULL : ucs_status_string(status);
}

int main(int argc, char **argv) {
    begin();
    if (argc != 3) {
        fprintf(stderr, "usage: driver SOCKET A|B; haul channel bench starts it\n");
        return 2;
    }
    int is_b = argv[2][0] == 'B';
    const char *failed = start();
    if (!failed)
        failed = connect_ends(argv[1], is_b);
    if (failed) {
        fprintf(stderr, "cannot start UCX: %s\n", failed);
        return 1;
    }
    return serve(argv[1], is_b, ucp_get_version_string());
}
