/* Ends with 0 if the answer is right. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    char line[64] = "";
    FILE *file = fopen("/app/answer.txt", "r");
    if (file == NULL || fgets(line, sizeof line, file) == NULL) return 1;
    line[strcspn(line, "\n")] = 0;
    assert(strcmp(line, "answer-is-5f1d7a84c03be692") == 0);
    return 0;
}
