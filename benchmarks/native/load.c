/* Load for the broker benchmark, in C so that the load is not what is measured.
 *
 * One asker keeps K calls open, one answering peer replies to each; both speak pisub's wire. The process is replaced by
 * this program after its Hello frames were made for its pid, so the broker finds the identity that it checks.
 *
 * usage: load ENDPOINT HELLO_ASKER_FILE HELLO_ANSWERER_FILE K CALLS PAYLOAD_BYTES
 * prints: {"calls":N,"replies":N,"unexpected":N,"seconds":S}
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "zmq_abi.h"

enum { CALL = 6, REPLY = 7, DONE = 12, WIRE_VERSION = 1, FRAME_MAX = 1 << 20 };

static const char *endpoint;
static void *context;
static volatile int finished;

static void *connect_and_hello(const char *hello_file)
{
    static unsigned char hello[1 << 16];
    FILE *file = fopen(hello_file, "rb");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", hello_file);
        exit(1);
    }
    size_t size = fread(hello, 1, sizeof hello, file);
    fclose(file);
    void *socket = zmq_socket(context, ZMQ_DEALER);
    int mark = 0, linger = 0, timeout = 20000;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &mark, sizeof mark);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &mark, sizeof mark);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
    if (zmq_connect(socket, endpoint) != 0) {
        fprintf(stderr, "cannot connect %s\n", endpoint);
        exit(1);
    }
    zmq_send(socket, hello, size, 0);
    char answer[1 << 12];
    if (zmq_recv(socket, answer, sizeof answer, 0) < 0 || zmq_recv(socket, answer, sizeof answer, 0) < 0) {
        fprintf(stderr, "no welcome from %s\n", endpoint);
        exit(1);
    }
    return socket;
}

/* What one socket has read: a frame, or a bundle of stamps and frames by turns with some of them still to be taken. */
struct inbox {
    void *socket;
    unsigned char *data;
    uint32_t parts, part, at;
};

static uint32_t big_endian(const unsigned char *at, int width)
{
    uint32_t number = 0;
    while (width--)
        number = number << 8 | *at++;
    return number;
}

/* Reads the next frame of [stamp, frame] or of a bundle; returns its size, or -1. */
static int receive(struct inbox *inbox, unsigned char **frame)
{
    if (inbox->part == inbox->parts) {
        int size = zmq_recv(inbox->socket, inbox->data, FRAME_MAX, 0);
        if (size < 0)
            return -1;
        if (size < 6 || memcmp(inbox->data, "psB", 3) != 0) {
            *frame = inbox->data;
            return zmq_recv(inbox->socket, inbox->data, FRAME_MAX, 0);
        }
        inbox->parts = big_endian(inbox->data + 4, 2);
        inbox->part = 0;
        inbox->at = 6 + 4 * inbox->parts;
    }
    uint32_t stamp = big_endian(inbox->data + 6 + 4 * inbox->part, 4);
    uint32_t size = big_endian(inbox->data + 10 + 4 * inbox->part, 4);
    *frame = inbox->data + inbox->at + stamp;
    inbox->at += stamp + size;
    inbox->part += 2;
    return (int)size;
}

static unsigned char *put_text(unsigned char *at, const char *text)
{
    size_t size = strlen(text);
    *at++ = (unsigned char)(0xa0 | size); /* fixstr: all of ours are under 32 bytes */
    memcpy(at, text, size);
    return at + size;
}

static unsigned char *put_u32(unsigned char *at, uint32_t number)
{
    *at++ = 0xce;
    for (int shift = 24; shift >= 0; shift -= 8)
        *at++ = (unsigned char)(number >> shift);
    return at;
}

/* [kind, priority, message_id, correlation_id, scope, topic, to] and a body of zeros as one msgpack bin. */
static size_t make_frame(unsigned char *frame, int kind, uint32_t id, uint32_t correlation, const char *to, int payload)
{
    unsigned char *at = frame + 6;
    *at++ = 0x97;
    *at++ = (unsigned char)kind;
    *at++ = 2;
    at = put_u32(at, id);
    at = put_u32(at, correlation);
    at = put_text(at, "");
    at = put_text(at, "");
    at = put_text(at, to);
    size_t header = (size_t)(at - frame - 6);
    memcpy(frame, "psb", 3);
    frame[3] = WIRE_VERSION;
    frame[4] = (unsigned char)(header >> 8);
    frame[5] = (unsigned char)header;
    memset(at, 0, (size_t)payload);
    return 6 + header + (size_t)payload;
}

/* Reads an unsigned msgpack integer and steps over it. */
static uint32_t get_uint(const unsigned char **at)
{
    unsigned char first = *(*at)++;
    uint32_t number = 0;
    int width = first < 0x80 ? 0 : first == 0xcc ? 1 : first == 0xcd ? 2 : first == 0xce ? 4 : 8;
    if (!width)
        return first;
    while (width--)
        number = number << 8 | *(*at)++;
    return number;
}

static void *answer(void *socket)
{
    struct inbox inbox = {socket, malloc(FRAME_MAX), 0, 0, 0};
    unsigned char *frame, *reply = malloc(FRAME_MAX);
    uint32_t next = 1;
    int timeout = 200;
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout, sizeof timeout);
    while (!finished) {
        int size = receive(&inbox, &frame);
        if (size < 0)
            continue;
        const unsigned char *at = frame + 7;
        uint32_t kind = get_uint(&at);
        get_uint(&at);
        uint32_t id = get_uint(&at);
        if (kind != CALL)
            continue;
        int payload = size - 6 - (frame[4] << 8 | frame[5]);
        zmq_send(socket, reply, make_frame(reply, REPLY, next++, id, "load-asker", payload), 0);
    }
    free(inbox.data);
    free(reply);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: %s ENDPOINT HELLO_ASKER HELLO_ANSWERER K CALLS PAYLOAD_BYTES\n", argv[0]);
        return 2;
    }
    endpoint = argv[1];
    uint32_t window = (uint32_t)atoi(argv[4]), calls = (uint32_t)atoi(argv[5]);
    int payload = atoi(argv[6]);
    context = zmq_ctx_new();
    void *answerer = connect_and_hello(argv[3]);
    void *asker = connect_and_hello(argv[2]);
    pthread_t thread;
    pthread_create(&thread, NULL, answer, answerer);

    struct inbox inbox = {asker, malloc(FRAME_MAX), 0, 0, 0};
    unsigned char *call = malloc(FRAME_MAX), *frame;
    unsigned char *seen = calloc(calls + 1, 1);
    uint32_t sent = 0, replies = 0, unexpected = 0;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (replies < calls) {
        while (sent < calls && sent - replies < window) {
            sent++;
            zmq_send(asker, call, make_frame(call, CALL, sent, 0, "load-answerer", payload), 0);
        }
        int size = receive(&inbox, &frame);
        if (size < 0)
            break; /* 20 s of silence: what is missing is lost */
        const unsigned char *at = frame + 7;
        uint32_t kind = get_uint(&at);
        get_uint(&at);
        get_uint(&at);
        uint32_t id = get_uint(&at);
        if (kind == REPLY && id >= 1 && id <= calls && !seen[id]) {
            seen[id] = 1;
            replies++;
        } else {
            unexpected++;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    finished = 1;
    pthread_join(thread, NULL);
    printf("{\"calls\":%u,\"replies\":%u,\"unexpected\":%u,\"seconds\":%.6f}\n", sent, replies, unexpected,
           (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
    zmq_close(asker);
    zmq_close(answerer);
    zmq_ctx_term(context);
    free(call);
    free(inbox.data);
    free(seen);
    return replies == calls ? 0 : 1;
}
