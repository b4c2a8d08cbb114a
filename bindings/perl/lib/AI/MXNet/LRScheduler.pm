package AI::MXNet::LRScheduler;

# Learning rates that follow the number of updates, as plain data.

use strict;
use warnings;

use Syncline::Error ();
use Syncline::Optimizer ();

our $VERSION = '0.1.0';

my %NAME = (FactorScheduler => 'factor', MultiFactorScheduler => 'multifactor', PolyScheduler => 'poly', CosineScheduler => 'cosine');

sub new {
    my ($class, @options) = @_;
    Syncline::Error::argument('a scheduler: options come in pairs, name => value') if @options % 2;
    my ($kind) = $class =~ /::(\w+)\z/;
    my $name = $NAME{$kind} // Syncline::Error::argument("$class is no scheduler; there are " . join ', ', sort keys %NAME);
    my $self = bless { @options, name => $name }, $class;
    # The library knows what makes sense.
    Syncline::Optimizer->create('sgd', lr_scheduler => $self);
    return $self;
}

sub base_lr { $_[0]{base_lr} }
sub plain   { my ($self) = @_; return { map { $_ => Syncline::Optimizer::plain_value($self->{$_}, $_) } grep { defined $self->{$_} } keys %$self } }

for my $kind (keys %NAME) {
    no strict 'refs';
    @{"AI::MXNet::${kind}::ISA"} = (__PACKAGE__);
    *$kind = sub { my (undef, @options) = @_; return "AI::MXNet::$kind"->new(@options) };
}

1;

__END__

=head1 NAME

AI::MXNet::LRScheduler - learning rates that follow the number of updates

=head1 SYNOPSIS

    my $schedule = mx->lr_scheduler->FactorScheduler(step => 1000, factor => 0.5, base_lr => 0.1);
    $kv->set_optimizer(mx->optimizer->SGD(lr_scheduler => $schedule));

=head1 DESCRIPTION

C<FactorScheduler(step, factor [1], stop_factor_lr [1e-8])>, C<MultiFactorScheduler(step =E<gt> [...], factor)>, C<PolyScheduler(max_update, pwr, final_lr)>, C<CosineScheduler(max_update, final_lr)>, all with C<base_lr>, C<warmup_steps>, C<warmup_begin_lr>, C<warmup_mode>.

=cut
