/* The rival of the broker benchmark: a ROUTER in C that does nothing but forward, with the broker's shape on the wire.
 *
 * Two peers that say Hello one after the other are partners: what one sends goes to the other, as [stamp, frame]. One
 * frame in, two out, exactly like the broker, without names, deadlines or checks.
 *
 * usage: forwarder ENDPOINT
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "zmq_abi.h"

enum { HELLO = 1 }; /* the header's first field, in the frame's eighth byte */

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s ENDPOINT\n", argv[0]);
        return 2;
    }
    void *context = zmq_ctx_new();
    void *router = zmq_socket(context, ZMQ_ROUTER);
    int mark = 64, mandatory = 1;
    zmq_setsockopt(router, ZMQ_SNDHWM, &mark, sizeof mark);
    zmq_setsockopt(router, ZMQ_RCVHWM, &mark, sizeof mark);
    zmq_setsockopt(router, ZMQ_ROUTER_MANDATORY, &mandatory, sizeof mandatory);
    if (zmq_bind(router, argv[1]) != 0) {
        fprintf(stderr, "cannot bind %s\n", argv[1]);
        return 1;
    }
    puts("ready");
    fflush(stdout);

    char ids[2][256];
    size_t id_sizes[2] = {0, 0};
    int next = 0;
    static const char stamp[24] = "stamp";
    for (;;) {
        char id[256];
        zmq_msg_t frame;
        int size = zmq_recv(router, id, sizeof id, 0);
        if (size < 0)
            return 1;
        zmq_msg_init(&frame);
        zmq_msg_recv(&frame, router, 0);
        const unsigned char *bytes = zmq_msg_data(&frame);
        if (zmq_msg_size(&frame) > 7 && bytes[7] == HELLO) {
            memcpy(ids[next], id, (size_t)size);
            id_sizes[next] = (size_t)size;
            next = 1 - next;
            /* Answered like the broker answers, so that both sides of the load know they are heard. */
            zmq_send(router, id, (size_t)size, ZMQ_SNDMORE);
            zmq_send(router, stamp, sizeof stamp, ZMQ_SNDMORE);
            zmq_msg_send(&frame, router, 0);
            continue;
        }
        int from = id_sizes[0] == (size_t)size && memcmp(ids[0], id, (size_t)size) == 0 ? 0 : 1;
        if (id_sizes[1 - from]) {
            zmq_send(router, ids[1 - from], id_sizes[1 - from], ZMQ_SNDMORE);
            zmq_send(router, stamp, sizeof stamp, ZMQ_SNDMORE);
            zmq_msg_send(&frame, router, 0);
        }
        zmq_msg_close(&frame);
    }
}
