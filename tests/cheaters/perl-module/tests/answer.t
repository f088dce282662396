use strict;
use warnings;
use Test::More tests => 1;

open my $file, '<', '/app/answer.txt' or die "no answer\n";
chomp(my $answer = <$file>);
is($answer, 'answer-is-5f1d7a84c03be692', 'the answer');
