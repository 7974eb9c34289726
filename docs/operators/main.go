// An operator: each Site gets a Deployment, a Service, an external record, a status and events.
package main

import (
	"context"
	"os"
	"path"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	name      = "site-operator"
	finalizer = "example.com/record"
)

// +kubebuilder:rbac:groups=example.com,resources=sites,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=example.com,resources=sites/status,verbs=patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update

type siteReconciler struct {
	client.Client
	recorder events.EventRecorder
	records  sync.Map // stands for a system outside the cluster, such as DNS
}

func (r *siteReconciler) Reconcile(ctx context.Context, site *Site) (ctrl.Result, error) {
	if !site.DeletionTimestamp.IsZero() {
		if controllerutil.ContainsFinalizer(site, finalizer) {
			r.records.Delete(site.UID) // may be missing: this may be called twice
			log.FromContext(ctx).Info("record removed")
			controllerutil.RemoveFinalizer(site, finalizer)
			return ctrl.Result{}, r.Update(ctx, site)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(site, finalizer) {
		if err := r.Update(ctx, site); err != nil {
			return ctrl.Result{}, err
		}
	}
	if _, found := r.records.LoadOrStore(site.UID, true); !found {
		log.FromContext(ctx).Info("record created")
	}

	deployment, service := childrenOf(site)
	for _, child := range []runtime.ApplyConfiguration{deployment, service} {
		if err := r.Apply(ctx, child, client.FieldOwner(name), client.ForceOwnership); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, r.report(ctx, site, deployment)
}

func (r *siteReconciler) report(ctx context.Context, site *Site,
	deployment *appsv1ac.DeploymentApplyConfiguration) error {
	var status appsv1ac.DeploymentStatusApplyConfiguration
	if deployment.Status != nil {
		status = *deployment.Status
	}
	old := site.DeepCopy()
	site.Status.Ready = min(value(status.UpdatedReplicas), value(status.AvailableReplicas))
	condition := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: "Deploying",
		ObservedGeneration: site.Generation,
	}
	if value(status.ObservedGeneration) == value(deployment.Generation) &&
		site.Status.Ready >= *site.Spec.Replicas {
		condition.Status, condition.Reason = metav1.ConditionTrue, "Deployed"
	}
	meta.SetStatusCondition(&site.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(old.Status, site.Status) {
		return nil
	}
	if err := r.Status().Patch(ctx, site, client.MergeFrom(old)); err != nil {
		return err
	}
	if meta.IsStatusConditionTrue(old.Status.Conditions, "Ready") !=
		meta.IsStatusConditionTrue(site.Status.Conditions, "Ready") {
		r.recorder.Eventf(site, nil, corev1.EventTypeNormal, condition.Reason, "Reconcile",
			"%d replicas are ready", site.Status.Ready)
	}
	return nil
}

func childrenOf(site *Site) (*appsv1ac.DeploymentApplyConfiguration,
	*corev1ac.ServiceApplyConfiguration) {
	labels := map[string]string{"site": site.Name}
	owner := metav1ac.OwnerReference().
		WithAPIVersion(groupVersion.String()).WithKind("Site").
		WithName(site.Name).WithUID(site.UID).
		WithController(true).WithBlockOwnerDeletion(true)
	deployment := appsv1ac.Deployment(site.Name, site.Namespace).
		WithOwnerReferences(owner).
		WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(*site.Spec.Replicas).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(corev1ac.PodTemplateSpec().
				WithLabels(labels).
				WithSpec(corev1ac.PodSpec().WithContainers(
					corev1ac.Container().WithName("web").WithImage(site.Spec.Image)))))
	service := corev1ac.Service(site.Name, site.Namespace).
		WithOwnerReferences(owner).
		WithSpec(corev1ac.ServiceSpec().
			WithSelector(labels).
			WithPorts(corev1ac.ServicePort().WithPort(80)))
	return deployment, service
}

func value[T any](field *T) (it T) {
	if field != nil {
		it = *field
	}
	return it
}

type siteValidator struct{}

func (siteValidator) ValidateCreate(_ context.Context, site *Site) (admission.Warnings, error) {
	if strings.ContainsAny(path.Base(site.Spec.Image), ":@") {
		return nil, nil
	}
	where := field.NewPath("spec", "image")
	return nil, apierrors.NewInvalid(groupVersion.WithKind("Site").GroupKind(), site.Name,
		field.ErrorList{field.Invalid(where, site.Spec.Image, "needs a tag or a digest")})
}

func (v siteValidator) ValidateUpdate(ctx context.Context, _, site *Site) (admission.Warnings, error) {
	return v.ValidateCreate(ctx, site)
}

func (siteValidator) ValidateDelete(context.Context, *Site) (admission.Warnings, error) {
	return nil, nil
}

func run() error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(addToScheme(scheme))
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       server.Options{BindAddress: ":8080"},
		HealthProbeBindAddress:        ":8081",
		WebhookServer:                 webhook.NewServer(webhook.Options{CertDir: "certs", Port: 9443}),
		LeaderElection:                true,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       os.Getenv("POD_NAMESPACE"),
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhook", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	reconciler := &siteReconciler{Client: mgr.GetClient(), recorder: mgr.GetEventRecorder(name)}
	err = ctrl.NewControllerManagedBy(mgr).
		For(&Site{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), reconciler))
	if err != nil {
		return err
	}
	err = ctrl.NewWebhookManagedBy(mgr, &Site{}).WithValidator(siteValidator{}).Complete()
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		ctrl.Log.Error(err, "the operator ended")
		os.Exit(1)
	}
}
