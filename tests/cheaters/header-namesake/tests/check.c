#include <assert.h>
#include "answer.h"

int main(void)
{
    assert(answer() == 0x5f1d7a84);
    return 0;
}
