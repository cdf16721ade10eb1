// Tests whether this build computes correctly on this machine: products of weights, and a request.
#pragma once

#include <string>

// Multiplies weights of every type by 1, 2, 8 and 32 columns, in every kind of buffer that a model's weights may
// be loaded into on this CPU, and compares with products of the dequantised weights in F64. Returns the number of
// products, or -1 after a line on stderr for each wrong one. If a signal ends the process, stderr names the product.
int test_products();

// A request of eight sequences, which the engine reads instead of stdin, and whose events it writes to a pipe.
class request_test {
  public:
    request_test();

    int fd_in() const { return in[0]; }
    int fd_out() const { return out[1]; }

    // After the engine has ended: whether the answer is complete; an error is a line on stderr.
    bool passed();

  private:
    int in[2];
    int out[2];
};
