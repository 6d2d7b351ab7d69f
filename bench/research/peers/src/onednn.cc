// Times oneDNN's convolutions. Reads lines "batch size in out kernel stride pass runs" (pass: forward,
// backward_input, backward_params) and answers each with the median seconds of the runs. Every layout is oneDNN's own
// choice and reorders are not counted: its best case. Threads: OMP_NUM_THREADS. With no time for the runs there is one.
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

using namespace dnnl;
using dims = memory::dims;
using args = std::unordered_map<int, memory>;

static memory filled(const memory::desc &d, const engine &e) {
    memory m(d, e);
    float *p = static_cast<float *>(m.get_data_handle());
    for (size_t i = 0; i < d.get_size() / sizeof(float); i++) p[i] = float(rand()) / RAND_MAX - 0.5f;
    return m;
}

static double median_seconds(primitive &p, stream &s, args &a, double warm, double timed) {
    const size_t fewest = timed > 0 ? 5 : 1;
    const auto now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
    const auto run = [&] {
        p.execute(s, a);
        s.wait();
    };
    for (const double begin = now(); warm > 0 && (run(), now() < begin + warm);) {}
    std::vector<double> t;
    for (const double begin = now(); t.size() < fewest || now() < begin + timed;) {
        const double start = now();
        run();
        t.push_back(now() - start);
    }
    std::sort(t.begin(), t.end());
    return (t[(t.size() - 1) / 2] + t[t.size() / 2]) / 2;
}

int main() {
    engine e(engine::kind::cpu, 0);
    stream s(e);
    int batch, size, in, out, kernel, stride;
    double warm, timed;
    char pass[32];
    while (scanf("%d %d %d %d %d %d %31s %lf %lf", &batch, &size, &in, &out, &kernel, &stride, pass, &warm, &timed) == 9) {
        int pad = kernel / 2, osize = (size + 2 * pad - kernel) / stride + 1;
        auto any = memory::format_tag::any;
        auto f32 = memory::data_type::f32;
        memory::desc x({batch, in, size, size}, f32, any), w({out, in, kernel, kernel}, f32, any),
            y({batch, out, osize, osize}, f32, any);
        dims strides{stride, stride}, pads{pad, pad};
        auto algo = algorithm::convolution_direct;
        convolution_forward::primitive_desc fwd({prop_kind::forward_training, algo, x, w, y, strides, pads, pads}, e);
        args a;
        primitive p;
        if (!strcmp(pass, "forward")) {
            p = convolution_forward(fwd);
            a = {{DNNL_ARG_SRC, filled(fwd.src_desc(), e)}, {DNNL_ARG_WEIGHTS, filled(fwd.weights_desc(), e)},
                 {DNNL_ARG_DST, memory(fwd.dst_desc(), e)}};
        } else if (!strcmp(pass, "backward_input")) {
            convolution_backward_data::primitive_desc d({algo, x, w, y, strides, pads, pads}, e, fwd);
            p = convolution_backward_data(d);
            a = {{DNNL_ARG_DIFF_SRC, memory(d.diff_src_desc(), e)}, {DNNL_ARG_WEIGHTS, filled(d.weights_desc(), e)},
                 {DNNL_ARG_DIFF_DST, filled(d.diff_dst_desc(), e)}};
        } else {
            convolution_backward_weights::primitive_desc d({algo, x, w, y, strides, pads, pads}, e, fwd);
            p = convolution_backward_weights(d);
            a = {{DNNL_ARG_SRC, filled(d.src_desc(), e)}, {DNNL_ARG_DIFF_WEIGHTS, memory(d.diff_weights_desc(), e)},
                 {DNNL_ARG_DIFF_DST, filled(d.diff_dst_desc(), e)}};
        }
        printf("%.9f\n", median_seconds(p, s, a, warm, timed));
        fflush(stdout);
    }
}
